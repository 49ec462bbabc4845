package fencepost.spark.send;

import fencepost.spark.encode.RecordBatch;
import fencepost.spark.kafka.TopicPartition;
import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import org.apache.spark.TaskKilledException;

/**
 * The record batches of a task between its two threads: the task puts them in, its sender takes them out.
 *
 * The task waits while the outbox is full, so that slow brokers do not make the task fill the memory. A failure of the sender
 * reaches the task at its next call.
 */
final class Outbox {
    private static final long LOOK_AROUND_MS = 100;

    private final long mostBytes;
    private final BooleanSupplier isKilled;
    private final Map<TopicPartition, ArrayDeque<RecordBatch>> waiting = new LinkedHashMap<>();
    private volatile long bytes; // Of the buffers of record batches that wait or are on their way.
    private boolean isComplete;
    private RuntimeException failure;

    /** isKilled: has Spark given up the task? A task that waits would not notice. */
    Outbox(long mostBytes, BooleanSupplier isKilled) {
        this.mostBytes = mostBytes;
        this.isKilled = isKilled;
    }

    // --- the task -----------------------------------------------------------------------------------------------

    synchronized void put(RecordBatch batch) {
        while (bytes >= mostBytes) {
            await();
        }
        check();
        bytes += batch.bytes().length;
        waiting.computeIfAbsent(batch.where, where -> new ArrayDeque<>()).add(batch);
        notifyAll();
    }

    boolean isEmpty() {
        return bytes == 0;
    }

    /** Called after the last record batch. Returns when all are acknowledged. */
    synchronized void finish() {
        isComplete = true;
        notifyAll();
        while (bytes > 0) {
            await();
        }
        check();
    }

    private void await() {
        check();
        try {
            wait(LOOK_AROUND_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new TaskKilledException("interrupted");
        }
        if (isKilled.getAsBoolean()) {
            throw new TaskKilledException("killed while it waited for its record batches to be written");
        }
    }

    private void check() {
        if (failure != null) {
            throw failure;
        }
    }

    // --- its sender ---------------------------------------------------------------------------------------------

    /** Waits for work. False: all work is done. */
    synchronized boolean awaitWork() throws InterruptedException {
        while (waiting.isEmpty() && !isComplete) {
            wait();
        }
        return !waiting.isEmpty();
    }

    /** Some partitions that have a record batch waiting, and the number of its records. */
    synchronized Map<TopicPartition, Long> wants(int most) {
        Map<TopicPartition, Long> wants = new LinkedHashMap<>();
        // If there are too many to name at once, begin anywhere: otherwise all tasks would wait for the same few.
        int spare = waiting.size() - most;
        int skip = spare > 0 ? ThreadLocalRandom.current().nextInt(spare + 1) : 0;
        for (Map.Entry<TopicPartition, ArrayDeque<RecordBatch>> entry : waiting.entrySet()) {
            if (skip-- > 0) {
                continue;
            }
            wants.put(entry.getKey(), (long) entry.getValue().peek().recordCount);
            if (wants.size() == most) {
                break;
            }
        }
        return wants;
    }

    synchronized RecordBatch take(TopicPartition where) {
        ArrayDeque<RecordBatch> queue = waiting.remove(where);
        RecordBatch batch = queue.poll();
        if (!queue.isEmpty()) {
            waiting.put(where, queue); // At the end: other partitions are named first.
        }
        return batch;
    }

    synchronized void acknowledged(RecordBatch batch) {
        bytes -= batch.bytes().length;
        notifyAll();
    }

    synchronized void fail(RuntimeException problem) {
        failure = failure == null ? problem : failure;
        notifyAll();
    }
}
