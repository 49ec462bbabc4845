package fencepost.spark.encode;

import fencepost.spark.kafka.TopicPartition;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The next record batch of one partition, which grows record by record. */
final class Builder {
    private static final int MAX_RECORD_BYTES = 1 << 28; // No Kafka accepts a record of this size.

    final TopicPartition where;
    private final int laterLimit;
    private int limit;
    private byte[] buffer;
    private int end;
    private int count;
    private long nowMs;
    private long baseTimestamp;
    private long maxTimestamp;

    /** firstLimit: the most bytes of the first record batch; limit: of the others. */
    Builder(TopicPartition where, int firstLimit, int limit) {
        this.where = where;
        this.limit = firstLimit;
        this.laterLimit = limit;
    }

    boolean isEmpty() {
        return count == 0;
    }

    int size() {
        return count == 0 ? 0 : end;
    }

    /** Appends the record and returns by how much the record batch has grown; 0: the record has no room in it. */
    int append(Row row, Headers headers) {
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
            return 0;
        }
        if (count == 0) {
            buffer = Buffers.take();
            end = RecordBatch.HEADER_BYTES;
            baseTimestamp = timestamp;
            maxTimestamp = timestamp;
        }
        int began = count == 0 ? 0 : end;
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
        return end - began;
    }

    /** The record batch; the builder is empty then. */
    RecordBatch take(Codec codec) {
        RecordBatch made = RecordBatch.of(where, count, buffer, end, codec, baseTimestamp, maxTimestamp);
        if (made.bytes() != buffer) {
            Buffers.giveBack(buffer);
        }
        buffer = null;
        count = 0;
        limit = laterLimit;
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
        if (end + more > buffer.length) {
            int doubled = Math.min(2 * buffer.length, limit);
            buffer = Arrays.copyOf(buffer, Math.max(doubled, end + more));
        }
    }
}
