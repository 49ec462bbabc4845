package fencepost.spark.lease;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import fencepost.spark.kafka.TopicPartition;
import java.util.Map;

/**
 * A task's side of the lease service: asks the driver before every record batch, and blocks until the answer.
 *
 * Connects at once, so that a task that cannot reach its driver fails before its first row.
 */
public final class LeaseClient implements AutoCloseable {
    private static final int MAX_REASON_CHARS = 10_000;

    private final LeaseConnection connection;
    private final WritePlan plan;

    /** attemptNumber: Spark's number of this attempt at the input partition, within one attempt at its stage. */
    public LeaseClient(LeaseAddress address, TaskAttempt task, int attemptNumber) {
        connection = new LeaseConnection(address, task.toString());
        ObjectNode hello = object().put("attempt", attemptNumber).put("plan", true);
        hello.putArray("task").add(task.writeNumber()).add(task.partitionId()).add(task.taskAttemptId());
        plan = WritePlan.of(connection.greet(hello).get("plan"));
    }

    public WritePlan plan() {
        return plan;
    }

    /** The lease of one of these partitions. Null: no partition is free, and this task holds another lease. */
    public Granted acquire(Map<TopicPartition, Long> wants) {
        JsonNode granted = ask(withCounts("acquire", "wants", wants)).get("granted");
        return granted == null
                ? null
                : new Granted(
                        new TopicPartition(granted.get(0).asText(), granted.get(1).asInt()),
                        granted.get(2).asInt(),
                        granted.get(3).asInt(),
                        granted.get(4).asLong());
    }

    /** Gives the lease back: the brokers acknowledged all its records, which took `bytes`. */
    public void release(Granted lease, long bytes) {
        ObjectNode message = object().put("op", "release").put("count", lease.recordCount()).put("bytes", bytes);
        message.putArray("lease").add(lease.where().topic()).add(lease.where().partition());
        connection.tell(message);
    }

    /** Reports the number of records written. Returns the result to report, which may be that of another attempt. */
    public TaskResult done(Map<TopicPartition, Long> counts) {
        try {
            ask(withCounts("done", "counts", counts));
        } catch (AlreadyWritten e) {
            return e.result;
        }
        throw new IllegalStateException("the driver gave no result for a task that is done");
    }

    /** Gives up, and says why. `isFatal`: every other attempt would fail as well. */
    public void fail(String reason, boolean isFatal) {
        String short_ = reason.substring(0, Math.min(reason.length(), MAX_REASON_CHARS));
        connection.tell(object().put("op", "fail").put("reason", short_).put("fatal", isFatal));
        close();
    }

    /** After AlreadyWritten: that result is not complete. Breaks the transaction, so the micro-batch runs again. */
    public void dispute(String reason) {
        connection.tell(object().put("op", "dispute").put("reason", reason));
        close();
    }

    /** Disconnects. For the driver the task is lost, unless it has called `done`. */
    @Override
    public void close() {
        connection.close();
    }

    private JsonNode ask(ObjectNode message) {
        JsonNode answer = connection.ask(message);
        JsonNode written = answer.get("written");
        if (written != null) {
            long records = 0;
            for (JsonNode count : written.get(3)) {
                records += count.get(2).asLong();
            }
            throw new AlreadyWritten(new TaskResult(written.toString(), records));
        }
        return answer;
    }

    private static ObjectNode withCounts(String op, String field, Map<TopicPartition, Long> counts) {
        ObjectNode message = object().put("op", op);
        ArrayNode all = message.putArray(field);
        counts.forEach((where, count) -> all.addArray().add(where.topic()).add(where.partition()).add(count));
        return message;
    }

    private static ObjectNode object() {
        return LeaseConnection.JSON.createObjectNode();
    }
}
