package fencepost.spark.encode;

import fencepost.spark.kafka.TopicPartition;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The next record batch of one partition, which grows record by record. */
final class Builder {
    private static final int MAX_RECORD_BYTES = 1 << 28; // No Kafka accepts a record of this size.
    /** The size of the first buffer. If there are many partitions, most of them may get only a few records. */
    private static final int LEAST_BYTES = 1 << 10;

    final TopicPartition where;
    private final int limit;
    private final int mostExpectedBytes;
    private boolean isFull;
    private int expectedBytes = LEAST_BYTES; // After a full record batch, the next one is probably as large.
    private byte[] buffer;
    private int end;
    private int count;
    private long nowMs;
    private long baseTimestamp;
    private long maxTimestamp;

    /** limit: the most bytes of a record batch. mostExpectedBytes: of an empty buffer. */
    Builder(TopicPartition where, int limit, int mostExpectedBytes) {
        this.where = where;
        this.mostExpectedBytes = Math.max(LEAST_BYTES, Math.min(mostExpectedBytes, limit));
        this.limit = limit;
    }

    boolean isEmpty() {
        return count == 0;
    }

    int size() {
        return count == 0 ? 0 : end;
    }

    /** The memory that the record batch takes, which is more than its size. */
    int heldBytes() {
        return buffer == null ? 0 : buffer.length;
    }

    /** Appends the record. False: it has no room in the record batch. */
    boolean append(Row row, Headers headers) {
        if (count == 0) {
            nowMs = System.currentTimeMillis();
        }
        long timestamp = row.hasTimestamp ? row.timestampMs : nowMs;
        long delta = count == 0 ? 0 : timestamp - baseTimestamp;
        long body = 1L + Varint.sizeOf(delta) + Varint.sizeOf(count) + sizeOf(row.key) + sizeOf(row.value) + headers.size();
        long size = Varint.sizeOf(body) + body;
        if (size > MAX_RECORD_BYTES) {
            throw new BadRecord("row " + row.number() + " has " + size + " bytes: more than can be encoded");
        }
        if (count > 0 && end + size > limit) {
            isFull = true;
            return false;
        }
        if (count == 0) {
            end = RecordBatch.HEADER_BYTES;
            baseTimestamp = timestamp;
            maxTimestamp = timestamp;
        }
        reserve((int) size);
        maxTimestamp = Math.max(maxTimestamp, timestamp);
        int at = Varint.write(buffer, end, body);
        buffer[at++] = 0; // Attributes, all unused.
        at = Varint.write(buffer, at, delta);
        at = Varint.write(buffer, at, count);
        at = write(at, row.key);
        at = write(at, row.value);
        end = headers.copyTo(buffer, at);
        count++;
        return true;
    }

    /** The record batch; the builder is empty then. */
    RecordBatch take(Codec codec) {
        RecordBatch made = RecordBatch.of(where, count, buffer, end, codec, baseTimestamp, maxTimestamp);
        if (made.bytes() != buffer) {
            Buffers.giveBack(buffer);
        }
        expectedBytes = isFull ? mostExpectedBytes : LEAST_BYTES;
        isFull = false;
        buffer = null;
        count = 0;
        return made;
    }

    private static int sizeOf(UTF8String field) {
        return field == null ? 1 : Varint.sizeOf(field.numBytes()) + field.numBytes();
    }

    private int write(int at, UTF8String field) {
        if (field == null) {
            return Varint.write(buffer, at, -1);
        }
        int from = Varint.write(buffer, at, field.numBytes());
        field.writeToMemory(buffer, Platform.BYTE_ARRAY_OFFSET + from);
        return from + field.numBytes();
    }

    private void reserve(int more) {
        int held = heldBytes();
        if (end + more > held) {
            int wanted = buffer == null ? expectedBytes : Math.min(2 * held, limit);
            byte[] larger = Buffers.take(Math.max(end + more, wanted));
            if (buffer != null) {
                System.arraycopy(buffer, 0, larger, 0, end);
                Buffers.giveBack(buffer);
            }
            buffer = larger;
        }
    }
}
