package fencepost.spark.send;

import fencepost.spark.encode.Buffers;
import fencepost.spark.encode.RecordBatch;
import fencepost.spark.kafka.ClientError;
import fencepost.spark.kafka.Cluster;
import fencepost.spark.kafka.PinnedTopic;
import fencepost.spark.kafka.TopicPartition;
import fencepost.spark.lease.Granted;
import fencepost.spark.lease.LeaseClient;
import fencepost.spark.lease.WritePlan;
import fencepost.spark.send.Delivery.Leased;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BooleanSupplier;

/**
 * The second thread of a task: takes the leases that are free, sends their record batches, and gives the leases back, while
 * the task encodes the next rows.
 */
public final class Sender implements AutoCloseable {
    /** The most partitions that a task names when it asks for a lease: one of so many is free soon. */
    private static final int WANTS_AT_ONCE = 64;
    private static final long JOIN_MS = 1_000;

    private final LeaseClient leases;
    private final Delivery delivery;
    private final Outbox outbox;
    private final Map<TopicPartition, Long> counts = new LinkedHashMap<>();
    private final Thread thread;

    public Sender(
            WritePlan plan,
            Cluster cluster,
            LeaseClient leases,
            Map<String, PinnedTopic> topics,
            long mostBytes,
            BooleanSupplier isKilled,
            String name) {
        this.leases = leases;
        this.delivery = new Delivery(plan, cluster, leases, topics);
        this.outbox = new Outbox(mostBytes, isKilled);
        this.thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Waits while too many are on their way. Raises what went wrong in the other thread. */
    public void put(RecordBatch batch) {
        outbox.put(batch);
    }

    /** There are no more. Returns the number of records in each partition, when all are acknowledged. */
    public Map<TopicPartition, Long> finish() throws InterruptedException {
        outbox.finish();
        thread.join();
        return counts;
    }

    /** Stops the thread, wherever it is. The caller has closed what it may be waiting for. */
    @Override
    public void close() {
        thread.interrupt();
        try {
            thread.join(JOIN_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        try {
            while (outbox.awaitWork()) {
                sendSome();
            }
        } catch (InterruptedException e) {
            outbox.fail(new WriteFailed("the task was stopped", e));
        } catch (ClientError e) {
            outbox.fail(reported(leases, e));
        } catch (RuntimeException e) {
            outbox.fail(e);
        } catch (Throwable e) {
            outbox.fail(new WriteFailed(e.toString(), e));
        }
    }

    /** Takes the leases that are free for the next record batches, sends those, and gives the leases back. */
    private void sendSome() throws InterruptedException {
        Map<TopicPartition, Leased> leased = new LinkedHashMap<>();
        for (int inVain = 0; inVain == 0 || inVain < leased.size(); ) {
            Map<TopicPartition, Long> wants = outbox.wants(WANTS_AT_ONCE, leased);
            if (wants.isEmpty()) {
                break;
            }
            Granted lease = leases.acquire(wants);
            if (lease != null) {
                leased.put(lease.where(), new Leased(outbox.take(lease.where()), lease));
            } else if (wants.size() < WANTS_AT_ONCE) {
                break;
            } else {
                inVain++;
            }
        }
        delivery.send(leased.values());
        for (Leased one : leased.values()) {
            leases.release(one.lease(), one.batch().size());
            counts.merge(one.where(), (long) one.batch().recordCount, Long::sum);
            outbox.acknowledged(one.batch());
            Buffers.giveBack(one.batch().bytes());
        }
    }

    /** Tells the driver why the task gives up. */
    public static WriteFailed reported(LeaseClient leases, ClientError problem) {
        boolean mayPass = problem instanceof ClientError.Unreachable || problem instanceof ClientError.DeadlinePassed;
        leases.fail(problem.getMessage(), !mayPass);
        return new WriteFailed(problem.getMessage(), problem);
    }
}
