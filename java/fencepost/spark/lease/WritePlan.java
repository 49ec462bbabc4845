package fencepost.spark.lease;

import com.fasterxml.jackson.databind.JsonNode;
import fencepost.spark.encode.Codec;
import fencepost.spark.kafka.ClientSettings;
import fencepost.spark.kafka.Identity;
import fencepost.spark.kafka.PinnedTopic;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

/**
 * The plan of a write: everything that its tasks need to know. It comes from the driver over the lease connection, and not
 * with the job, because it has secrets.
 *
 * topic: null if the rows name their topics. topics: those that the driver has pinned.
 */
public record WritePlan(
        ClientSettings settings,
        Identity identity,
        int produceVersion,
        String topic,
        Map<String, PinnedTopic> topics,
        Codec codec,
        int maxRecordBatchBytes) {

    static WritePlan of(JsonNode json) {
        JsonNode identity = json.get("identity");
        Map<String, PinnedTopic> topics = new HashMap<>();
        json.get("topics").fields().forEachRemaining(topic -> {
            JsonNode pinned = topic.getValue();
            topics.put(topic.getKey(), new PinnedTopic(UUID.fromString(pinned.get(0).asText()), pinned.get(1).asInt()));
        });
        return new WritePlan(
                ClientSettings.of(json.get("settings")),
                new Identity(identity.get(0).asText(), identity.get(1).asLong(), (short) identity.get(2).asInt()),
                json.get("produce_version").asInt(),
                json.hasNonNull("topic") ? json.get("topic").asText() : null,
                topics,
                Codec.named(json.get("compression").asText()),
                json.get("max_record_batch_bytes").asInt());
    }
}
