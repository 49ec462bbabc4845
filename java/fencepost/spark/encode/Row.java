package fencepost.spark.encode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The fields of one row. There is one object for all rows of a task: `read` points it to the next.
 *
 * Bytes are not copied: they stay in Spark's memory, which is valid until the next row.
 */
public final class Row {
    /** The most milliseconds that a varint of eight bytes can hold. Spark's own timestamps end earlier. */
    static final long MAX_TIMESTAMP_MS = (1L << 54) - 1;

    private final Columns columns;
    private long number = -1;
    UTF8String key;
    UTF8String value;
    ArrayData headers;
    long timestampMs;
    boolean hasTimestamp;
    UTF8String topic;
    int partition;
    boolean hasPartition;

    public Row(Columns columns) {
        this.columns = columns;
    }

    /** The number of the row within its task. */
    long number() {
        return number;
    }

    void read(InternalRow row) {
        number++;
        key = bytes(row, columns.key(), columns.isKeyText());
        value = bytes(row, columns.value(), columns.isValueText());
        headers = isNull(row, columns.headers()) ? null : row.getArray(columns.headers());
        topic = isNull(row, columns.topic()) ? null : row.getUTF8String(columns.topic());
        hasPartition = !isNull(row, columns.partition());
        partition = hasPartition ? row.getInt(columns.partition()) : -1;
        hasTimestamp = !isNull(row, columns.timestamp());
        timestampMs = hasTimestamp ? timestampMs(row.getLong(columns.timestamp())) : 0;
    }

    private long timestampMs(long time) {
        long ms = columns.isTimestampInMs() ? time : Math.floorDiv(time, 1000L);
        if (ms < 0 || ms > MAX_TIMESTAMP_MS) {
            throw new BadRecord("invalid timestamp in row " + number + ": " + ms
                    + " ms since 1970 is not in the range [0..." + MAX_TIMESTAMP_MS + "]");
        }
        return ms;
    }

    private static boolean isNull(InternalRow row, int column) {
        return column < 0 || row.isNullAt(column);
    }

    private static UTF8String bytes(InternalRow row, int column, boolean isText) {
        if (isNull(row, column)) {
            return null;
        }
        // In an UnsafeRow text and bytes look the same, and getUTF8String copies nothing.
        boolean isView = isText || row instanceof UnsafeRow;
        return isView ? row.getUTF8String(column) : UTF8String.fromBytes(row.getBinary(column));
    }
}
