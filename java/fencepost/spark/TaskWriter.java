package fencepost.spark;

import fencepost.spark.encode.BadRecord;
import fencepost.spark.encode.Columns;
import fencepost.spark.encode.Encoder;
import fencepost.spark.kafka.ClientError;
import fencepost.spark.kafka.Cluster;
import fencepost.spark.kafka.Clusters;
import fencepost.spark.kafka.Logins;
import fencepost.spark.kafka.PinnedTopic;
import fencepost.spark.lease.AlreadyWritten;
import fencepost.spark.lease.LeaseAddress;
import fencepost.spark.lease.LeaseClient;
import fencepost.spark.lease.TaskAttempt;
import fencepost.spark.lease.TaskResult;
import fencepost.spark.lease.WritePlan;
import fencepost.spark.send.Sender;
import fencepost.spark.send.WriteFailed;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.catalyst.InternalRow;

/** A task: encodes its rows, while its sender writes them under leases. Follows Python's `task/run.py`. */
final class TaskWriter implements AutoCloseable {
    /** The memory limits of a task: for record batches under construction, and for record batches in flight. */
    private static final long MOST_OPEN_BYTES = 16 << 20;
    private static final long MOST_SENDING_BYTES = 8 << 20;

    private final TaskAttempt task;
    private final LeaseClient leases;
    private final WritePlan plan;
    private final Cluster cluster;
    private final Map<String, PinnedTopic> topics;
    private final Sender sender;
    private final Encoder encoder;
    private long rows;
    private TaskResult writtenByAnother;
    private boolean isDone;

    /** openInput: runs while the task connects to the driver. */
    TaskWriter(TaskContext context, LeaseAddress address, int writeNumber, Columns columns, Runnable openInput) {
        TaskAttempt attempt = new TaskAttempt(writeNumber, context.partitionId(), context.taskAttemptId());
        task = attempt;
        leases = LeaseClient.connect(address, task, context.attemptNumber(), openInput, context::isInterrupted);
        plan = leases.plan();
        // It outlives the task, so it must not keep more of it than this.
        Logins.offer(plan.settings().loginId(), () -> LeaseClient.token(address, attempt));
        cluster = Clusters.take(plan.settings());
        topics = new ConcurrentHashMap<>(plan.topics());
        String name = "fencepost sender of task " + task.taskAttemptId();
        sender = new Sender(plan, cluster, leases, topics, MOST_SENDING_BYTES, context::isInterrupted, name);
        encoder = new Encoder(
                columns,
                plan.topic(),
                topic -> topics.computeIfAbsent(topic, cluster::pin),
                // Every task of every micro-batch begins elsewhere: otherwise small tasks would all write to the first
                // partitions.
                Objects.hash(plan.identity().producerEpoch(), writeNumber, task.partitionId()) & 0x7FFFFFFF,
                plan.codec(),
                plan.maxRecordBatchBytes(),
                MOST_OPEN_BYTES,
                sender::put,
                sender::isIdle);
    }

    void write(InternalRow row) {
        rows++;
        if (writtenByAnother == null) {
            try {
                encoder.add(row);
            } catch (AlreadyWritten e) {
                writtenByAnother = e.result;
            } catch (BadRecord e) {
                leases.fail(e.getMessage(), true);
                throw new WriteFailed(e.getMessage(), e);
            } catch (ClientError e) {
                throw Sender.reported(leases, e);
            }
        }
    }

    /** All rows were written, by this attempt or by another. */
    TaskResult finish() {
        TaskResult result = writtenByAnother == null ? sendRest() : writtenByAnother;
        if (writtenByAnother != null && result.records() < rows) {
            // The other attempt did not see all rows. If this attempt saw too few of them, the result of the other is sound.
            String reason = "an earlier attempt at input partition " + task.partitionId() + " wrote " + result.records()
                    + " records, but there are " + rows + " rows";
            leases.dispute(reason);
            throw new WriteFailed(reason, null);
        }
        return result;
    }

    private TaskResult sendRest() {
        try {
            encoder.finish();
            TaskResult result = leases.done(sender.finish(), topics);
            isDone = true;
            return result;
        } catch (AlreadyWritten e) {
            return writtenByAnother = e.result;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new TaskKilledException("interrupted");
        }
    }

    /** If the task is not done, the driver notices that it is gone. */
    @Override
    public void close() {
        leases.close();
        if (isDone) {
            Clusters.giveBack(plan.settings(), cluster);
            return;
        }
        // The sender may wait for an answer of a broker, so its connections are of no use to another task.
        cluster.close();
        sender.close();
    }
}
