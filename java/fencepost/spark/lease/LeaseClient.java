package fencepost.spark.lease;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import fencepost.spark.kafka.ClientError.AuthenticationFailed;
import fencepost.spark.kafka.ClientError.NoToken;
import fencepost.spark.kafka.Logins.Token;
import fencepost.spark.kafka.PinnedTopic;
import fencepost.spark.kafka.TopicPartition;
import java.io.EOFException;
import java.net.SocketException;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;

/**
 * A task's side of the lease service: asks the driver before it sends record batches, and blocks until the answer.
 *
 * Connects at once, so that a task that cannot reach its driver fails before it encodes its first row.
 */
public final class LeaseClient implements AutoCloseable {
    private static final int MAX_REASON_CHARS = 10_000;
    /** How long a task waits for a place if the driver has as many connections as it may open files. */
    private static final long ROOM_TIMEOUT_MS = 600_000;
    /** The driver may have to ask a token endpoint first. */
    private static final int LOGIN_TIMEOUT_MS = 20_000;
    private static final long FIRST_PAUSE_MS = 100;
    private static final long LONGEST_PAUSE_MS = 5_000;

    private final LeaseConnection connection;
    private final WritePlan plan;

    /** attemptNumber: Spark's number of this attempt at the input partition, within one attempt at its stage. */
    private LeaseClient(LeaseAddress address, TaskAttempt task, int attemptNumber) {
        ObjectNode hello = object().put("attempt", attemptNumber).put("plan", true);
        hello.putArray("task").add(task.writeNumber()).add(task.partitionId()).add(task.taskAttemptId());
        Greeted greeted = greet(address, task.toString(), hello);
        connection = greeted.connection;
        plan = WritePlan.of(greeted.answer.get("plan"));
    }

    /** Connects while `meanwhile` runs, in which the task opens its input. isKilled: has Spark given up the task? */
    public static LeaseClient connect(
            LeaseAddress address, TaskAttempt task, int attemptNumber, Runnable meanwhile, BooleanSupplier isKilled) {
        String thread = "fencepost connection of task " + task.taskAttemptId();
        return Connecting.beside(meanwhile, isKilled, () -> new LeaseClient(address, task, attemptNumber), thread);
    }

    private record Greeted(LeaseConnection connection, JsonNode answer) {}

    /** Connects and introduces the task. A driver without a place closes the connection without an answer. */
    private static Greeted greet(LeaseAddress address, String who, ObjectNode hello) {
        long deadline = System.currentTimeMillis() + ROOM_TIMEOUT_MS;
        for (long pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
            LeaseConnection connection = new LeaseConnection(address, who);
            try {
                return new Greeted(connection, connection.greet(hello));
            } catch (DriverUnreachable e) {
                boolean isFull = e.getCause() instanceof EOFException || e.getCause() instanceof SocketException;
                if (!isFull || System.currentTimeMillis() + pauseMs > deadline) {
                    throw e;
                }
                pause(pauseMs, e);
            }
        }
    }

    private static void pause(long ms, DriverUnreachable why) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw why;
        }
    }

    /** The token with which the tasks of the transaction log in to the brokers. The driver makes it. */
    public static Token token(LeaseAddress address, TaskAttempt task) {
        try (LeaseConnection connection = new LeaseConnection(address, task.toString())) {
            JsonNode answer = connection.introduce("login", object(), LOGIN_TIMEOUT_MS);
            Map<String, String> extensions = new LinkedHashMap<>();
            answer.get("extensions").fields().forEachRemaining(e -> extensions.put(e.getKey(), e.getValue().asText()));
            return new Token(answer.get("token").asText(), answer.get("lifetime_ms").asLong(), extensions);
        } catch (DriverUnreachable e) {
            throw new NoToken(e.getMessage());
        } catch (RefusedByDriver e) {
            throw e.isFatal ? new AuthenticationFailed(e.getMessage()) : new NoToken(e.getMessage());
        }
    }

    public WritePlan plan() {
        return plan;
    }

    /**
     * Leases of these partitions, for record batches of so many records: as many as are free, and at least one. The task
     * holds no other lease.
     */
    public List<Lease> acquire(Map<TopicPartition, Long> wants) {
        connection.tell(LeaseMessages.acquire(wants));
        return granted(wants);
    }

    /** `release`, then `acquire`, sent together: the driver is woken once. */
    public List<Lease> exchange(Collection<Lease> leases, long bytes, Map<TopicPartition, Long> wants) {
        connection.tell(LeaseMessages.release(counts(leases), bytes), LeaseMessages.acquire(wants));
        return granted(wants);
    }

    private List<Lease> granted(Map<TopicPartition, Long> wants) {
        byte[] answer = connection.receive();
        List<Lease> leases = LeaseMessages.granted(answer, wants);
        if (leases == null) {
            checked(connection.read(answer));
            throw new IllegalStateException("the driver neither gave leases nor refused them");
        }
        return leases;
    }

    /** Gives the leases back: the brokers acknowledged all their records, which took `bytes` in all. */
    public void release(Collection<Lease> leases, long bytes) {
        connection.tell(LeaseMessages.release(counts(leases), bytes));
    }

    private static Map<TopicPartition, Long> counts(Collection<Lease> leases) {
        Map<TopicPartition, Long> records = new LinkedHashMap<>();
        leases.forEach(lease -> records.put(lease.where(), (long) lease.recordCount()));
        return records;
    }

    /**
     * Reports the number of records written, and the topics as the task found them. Returns the result to report, which may
     * be that of another attempt.
     */
    public TaskResult done(Map<TopicPartition, Long> counts, Map<String, PinnedTopic> topics) {
        try {
            ObjectNode message = object().put("op", "done");
            // One number for each partition: {"topic": [partition, number, partition, number ...]}.
            ObjectNode byTopic = message.putObject("counts");
            counts.forEach((where, count) -> byTopic.withArray(where.topic()).add(where.partition()).add(count));
            ObjectNode found = message.putObject("topics");
            topics.forEach((name, topic) ->
                    found.putArray(name).add(topic.topicId().toString()).add(topic.partitionCount()));
            checked(connection.ask(message));
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

    private static void checked(JsonNode answer) {
        JsonNode written = answer.get("written");
        if (written != null) {
            long records = 0;
            for (JsonNode numbers : written.get(3)) {
                for (int n = 1; n < numbers.size(); n += 2) {
                    records += numbers.get(n).asLong();
                }
            }
            throw new AlreadyWritten(new TaskResult(written.toString(), records));
        }
    }

    private static ObjectNode object() {
        return LeaseConnection.JSON.createObjectNode();
    }
}
