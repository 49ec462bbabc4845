package fencepost.spark.encode;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The headers of one record, encoded. There is one object for all records of a task. */
final class Headers {
    private byte[] bytes = new byte[256];
    private int size;

    int size() {
        return size;
    }

    void encode(ArrayData headers) {
        int count = headers == null ? 0 : headers.numElements();
        size = 0;
        appendNumber(count);
        for (int n = 0; n < count; n++) {
            InternalRow header = headers.isNullAt(n) ? null : headers.getStruct(n, 2);
            if (header == null || header.isNullAt(0)) {
                throw new BadRecord("a record header has no key");
            }
            append(header.getUTF8String(0));
            append(header.isNullAt(1) ? null : UTF8String.fromBytes(header.getBinary(1)));
        }
    }

    int copyTo(byte[] target, int at) {
        System.arraycopy(bytes, 0, target, at, size);
        return at + size;
    }

    private void appendNumber(long number) {
        reserve(10);
        size = Varint.write(bytes, size, number);
    }

    private void append(UTF8String text) {
        if (text == null) {
            appendNumber(-1);
            return;
        }
        appendNumber(text.numBytes());
        reserve(text.numBytes());
        text.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + size);
        size += text.numBytes();
    }

    private void reserve(int more) {
        if (size + more > bytes.length) {
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, size + more));
        }
    }
}
