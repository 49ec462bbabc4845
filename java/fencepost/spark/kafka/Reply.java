package fencepost.spark.kafka;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/** A reply, read field by field. Raises BufferUnderflowException where it ends too early. */
final class Reply {
    private final ByteBuffer bytes;

    Reply(byte[] frame) {
        bytes = ByteBuffer.wrap(frame);
    }

    int int16() {
        return bytes.getShort();
    }

    int int32() {
        return bytes.getInt();
    }

    long int64() {
        return bytes.getLong();
    }

    boolean bool() {
        return bytes.get() != 0;
    }

    UUID uuid() {
        return new UUID(bytes.getLong(), bytes.getLong());
    }

    int uvarint() {
        int value = 0;
        for (int shift = 0; ; shift += 7) {
            byte next = bytes.get();
            value |= (next & 0x7F) << shift;
            if (next >= 0) {
                return value;
            }
        }
    }

    /** The number of elements of a compact array; 0 for null. */
    int array() {
        return Math.max(0, uvarint() - 1);
    }

    String string() {
        return text(bytes.getShort());
    }

    /** Null where there is none. */
    String compactString() {
        return text(uvarint() - 1);
    }

    byte[] bytes() {
        byte[] found = new byte[bytes.getInt()];
        bytes.get(found);
        return found;
    }

    void skipTags() {
        for (int left = uvarint(); left > 0; left--) {
            uvarint();
            int size = uvarint();
            bytes.position(bytes.position() + size);
        }
    }

    private String text(int size) {
        if (size < 0) {
            return null;
        }
        byte[] found = new byte[size];
        bytes.get(found);
        return new String(found, StandardCharsets.UTF_8);
    }
}
