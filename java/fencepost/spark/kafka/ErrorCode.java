package fencepost.spark.kafka;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Kafka's error codes, with the meaning of each as the answer to a Produce request.
 *
 * The table is made from Python's `protocol/errors.py` and `task/produce_answer.py` when the jar is built.
 */
public record ErrorCode(int code, String name, Verdict verdict) {
    /** The words of Python's `task/produce_answer.py`. */
    public enum Verdict {
        WRITTEN,
        /** Send the same bytes again. */
        AGAIN,
        TOO_LARGE,
        /** The transaction is over. */
        BROKEN,
        /** Every attempt would fail. */
        FATAL
    }

    public static final int NONE = 0;
    public static final int UNKNOWN_TOPIC_OR_PARTITION = 3;
    public static final int LEADER_NOT_AVAILABLE = 5;
    public static final int MESSAGE_TOO_LARGE = 10;
    public static final int NETWORK_EXCEPTION = 13;
    public static final int UNKNOWN_TOPIC_ID = 100;

    private static final Map<Integer, ErrorCode> TABLE = read();

    /** An unknown code breaks the transaction: the write may or may not have happened. */
    public static ErrorCode of(int code) {
        ErrorCode known = TABLE.get(code);
        return known == null ? new ErrorCode(code, "error " + code, Verdict.BROKEN) : known;
    }

    private static Map<Integer, ErrorCode> read() {
        Map<Integer, ErrorCode> table = new HashMap<>();
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(ErrorCode.class.getResourceAsStream("errors.txt"), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split(" ");
                int code = Integer.parseInt(parts[0]);
                table.put(code, new ErrorCode(code, parts[1], Verdict.valueOf(parts[2])));
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return table;
    }

    @Override
    public String toString() {
        return name + " (" + code + ")";
    }
}
