package fencepost.spark.send;

import fencepost.spark.encode.Buffers;
import fencepost.spark.encode.RecordBatch;
import fencepost.spark.kafka.ClientError;
import fencepost.spark.kafka.Cluster;
import fencepost.spark.kafka.PinnedTopic;
import fencepost.spark.kafka.TopicPartition;
import fencepost.spark.lease.Lease;
import fencepost.spark.lease.LeaseClient;
import fencepost.spark.lease.WritePlan;
import fencepost.spark.send.Delivery.Leased;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;

/**
 * The second thread of a task: takes the leases that are free, sends their record batches, and gives the leases back, while
 * the task encodes the next rows.
 */
public final class Sender implements AutoCloseable {
    /** The most partitions that a task names when it asks for leases: some of so many are free soon. */
    private static final int WANTS_AT_ONCE = 1024;
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

    /** Waits while too many record batches are in flight. Throws the failure of the other thread. */
    public void put(RecordBatch batch) {
        outbox.put(batch);
    }

    /** Has it sent everything, and received all acknowledgements? */
    public boolean isIdle() {
        return outbox.isEmpty();
    }

    /** Called after the last record batch. Returns the number of records in each partition, when all are acknowledged. */
    public Map<TopicPartition, Long> finish() throws InterruptedException {
        outbox.finish();
        thread.join();
        return counts;
    }

    /** Stops the thread, wherever it is. The caller has closed the connections that the thread may be waiting for. */
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
            List<Lease> granted = List.of();
            while (outbox.awaitWork()) {
                granted = sendSome(granted.isEmpty() ? leases.acquire(outbox.wants(WANTS_AT_ONCE)) : granted);
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

    /** Sends the record batches of these leases, and gives the leases back. Returns the next ones, if there is work for them. */
    private List<Lease> sendSome(List<Lease> granted) throws InterruptedException {
        List<Leased> leased = new ArrayList<>();
        long bytes = 0;
        for (Lease lease : granted) {
            leased.add(new Leased(outbox.take(lease.where()), lease));
            bytes += leased.get(leased.size() - 1).batch().size();
        }
        delivery.send(leased);
        for (Leased one : leased) {
            counts.merge(one.where(), (long) one.batch().recordCount, Long::sum);
        }
        Map<TopicPartition, Long> wants = outbox.wants(WANTS_AT_ONCE);
        if (wants.isEmpty()) {
            leases.release(granted, bytes);
        }
        // Before the next leases: they may take a while, and the task waits for room.
        for (Leased one : leased) {
            outbox.acknowledged(one.batch());
            Buffers.giveBack(one.batch().bytes());
        }
        return wants.isEmpty() ? List.of() : leases.exchange(granted, bytes, wants);
    }

    /** Tells the driver why the task gives up. */
    public static WriteFailed reported(LeaseClient leases, ClientError problem) {
        boolean mayPass = problem instanceof ClientError.Unreachable || problem instanceof ClientError.DeadlinePassed;
        leases.fail(problem.getMessage(), !mayPass);
        return new WriteFailed(problem.getMessage(), problem);
    }
}
