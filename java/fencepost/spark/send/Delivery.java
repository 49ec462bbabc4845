package fencepost.spark.send;

import fencepost.spark.encode.RecordBatch;
import fencepost.spark.kafka.Cluster;
import fencepost.spark.kafka.ErrorCode;
import fencepost.spark.kafka.ErrorCode.Verdict;
import fencepost.spark.kafka.Identity;
import fencepost.spark.kafka.PinnedTopic;
import fencepost.spark.kafka.Produce;
import fencepost.spark.kafka.TopicPartition;
import fencepost.spark.lease.Lease;
import fencepost.spark.lease.LeaseClient;
import fencepost.spark.lease.WritePlan;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Sends record batches to their leaders, each under its lease, until the brokers have acknowledged them.
 *
 * A record batch that was sent once is only ever sent again as the same bytes, so a broker recognizes it by its sequence.
 * The rules are those of Python's `task/sender.py`.
 */
final class Delivery {
    private static final long PAUSE_MS = 20;
    private static final long LONGEST_PAUSE_MS = 500;

    /** A record batch, and the lease under which it is sent. */
    record Leased(RecordBatch batch, Lease lease) {
        TopicPartition where() {
            return lease.where();
        }
    }

    private final Identity identity;
    private final LeaseClient leases;
    private final Produce produce;

    Delivery(WritePlan plan, Cluster cluster, LeaseClient leases, Map<String, PinnedTopic> topics) {
        this.identity = plan.identity();
        this.leases = leases;
        this.produce = new Produce(cluster, identity.transactionalId(), plan.produceVersion(), topics);
    }

    /** Returns when every record batch is acknowledged. Raises WriteFailed, or Unreachable if no broker was ever reached. */
    void send(Collection<Leased> all) throws InterruptedException {
        Map<TopicPartition, Leased> left = new LinkedHashMap<>();
        long withinMs = Long.MAX_VALUE;
        for (Leased one : all) {
            one.batch.finish(identity, one.lease.baseSequence());
            left.put(one.where(), one);
            withinMs = Math.min(withinMs, one.lease.withinMs());
        }
        // Every attempt so far was refused for certain: nothing of them is in the log.
        Set<TopicPartition> neverInDoubt = new HashSet<>(left.keySet());
        long began = System.nanoTime();
        long deadline = began + withinMs * 1_000_000;
        long pauseMs = PAUSE_MS;
        while (!left.isEmpty()) {
            String again = "";
            for (Map.Entry<TopicPartition, Produce.Answer> entry : produce.send(payloads(left), began).entrySet()) {
                TopicPartition where = entry.getKey();
                Produce.Answer answer = entry.getValue();
                Verdict verdict = ErrorCode.of(answer.code()).verdict();
                if (verdict == Verdict.WRITTEN) {
                    left.remove(where);
                } else if (verdict == Verdict.AGAIN) {
                    again = where + ": " + answer.message();
                    neverInDoubt.remove(where);
                } else if (verdict == Verdict.TOO_LARGE && neverInDoubt.contains(where)) {
                    sendHalves(left.remove(where));
                } else {
                    throw refused(where, left.get(where).batch.size(), answer.code(), answer.message(), verdict);
                }
            }
            if (!left.isEmpty()) {
                if (System.nanoTime() + pauseMs * 1_000_000 > deadline) {
                    throw failed("no acknowledgement in time; the last answer was: " + again, false);
                }
                Thread.sleep(pauseMs);
                pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
            }
        }
    }

    private static Map<TopicPartition, Produce.Payload> payloads(Map<TopicPartition, Leased> left) {
        Map<TopicPartition, Produce.Payload> payloads = new LinkedHashMap<>();
        left.forEach((where, one) -> payloads.put(where, new Produce.Payload(one.batch.bytes(), one.batch.size())));
        return payloads;
    }

    /** The topic allows less than max.request.size: fill the lease's sequences with two smaller record batches. */
    private void sendHalves(Leased tooLarge) throws InterruptedException {
        Lease lease = tooLarge.lease;
        if (tooLarge.batch.recordCount == 1) {
            int size = tooLarge.batch.size();
            String message = "one record has " + size + " bytes, more than max.message.bytes of topic "
                    + lease.where().topic() + " allows";
            throw refused(tooLarge.where(), size, ErrorCode.MESSAGE_TOO_LARGE, message, Verdict.FATAL);
        }
        int sequence = lease.baseSequence();
        for (RecordBatch half : tooLarge.batch.halves()) {
            send(List.of(new Leased(half, new Lease(lease.where(), sequence, half.recordCount, lease.withinMs()))));
            sequence = sequence + half.recordCount & 0x7FFFFFFF;
        }
    }

    private WriteFailed refused(TopicPartition where, int size, int code, String message, Verdict verdict) {
        String reason = where + " refused " + size + " bytes of transaction `" + identity.transactionalId()
                + "` (producer " + identity.producerId() + ", epoch " + identity.producerEpoch() + ") with "
                + ErrorCode.of(code) + (message.isEmpty() ? "" : ": " + message);
        // A record batch that is too large, but may have been written, is not fatal: the next attempt learns the size
        // limit before anything is in doubt.
        return failed(reason, verdict == Verdict.FATAL);
    }

    private WriteFailed failed(String reason, boolean isFatal) {
        leases.fail(reason, isFatal);
        return new WriteFailed(reason, null);
    }
}
