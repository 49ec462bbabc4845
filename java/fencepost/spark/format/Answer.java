package fencepost.spark.format;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Python's answer as JSON, with one of these fields.
 *
 * `metrics`: the write succeeded; its numbers.
 * `refused`: the options are wrong; the reason.
 * `failed`: the write was not committed, or its outcome is unknown; the reason.
 * `stopped`: the query was stopped in the middle of the micro-batch, which was aborted.
 */
final class Answer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Answer() {}

    /** The metrics if the write succeeded; otherwise throws the exception that Spark expects. */
    static Map<String, String> metricsOf(String json) {
        JsonNode answer;
        try {
            answer = JSON.readTree(json);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException("Python's answer is no JSON: " + json, e);
        }
        if (answer.has("stopped")) {
            throw new UncheckedIOException(new ClosedByInterruptException());
        }
        if (answer.has("refused")) {
            throw new IllegalArgumentException(answer.get("refused").asText());
        }
        if (answer.has("failed")) {
            throw new SinkError(answer.get("failed").asText());
        }
        Map<String, String> metrics = new LinkedHashMap<>();
        answer.path("metrics").properties().forEach(field -> metrics.put(field.getKey(), field.getValue().asText()));
        return metrics;
    }

    static String asJson(Map<String, String> options) {
        try {
            return JSON.writeValueAsString(options);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(e);
        }
    }
}
