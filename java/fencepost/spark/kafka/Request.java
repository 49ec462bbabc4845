package fencepost.spark.kafka;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

/** A request: its fields, written one after another. Large fields are not copied before they are sent. */
final class Request {
    final int apiKey;
    final int version;
    private final boolean isFlexible;
    private final List<ByteBuffer> parts = new ArrayList<>();
    private byte[] bytes = new byte[256];
    private int from;
    private int end;

    Request(int apiKey, int version, boolean isFlexible) {
        this.apiKey = apiKey;
        this.version = version;
        this.isFlexible = isFlexible;
    }

    Request int8(int value) {
        reserve(1);
        bytes[end++] = (byte) value;
        return this;
    }

    Request int16(int value) {
        return int8(value >> 8).int8(value);
    }

    Request int32(int value) {
        return int16(value >> 16).int16(value);
    }

    Request uuid(UUID value) {
        reserve(16);
        ByteBuffer.wrap(bytes, end, 16).putLong(value.getMostSignificantBits()).putLong(value.getLeastSignificantBits());
        end += 16;
        return this;
    }

    Request uvarint(int value) {
        int left = value;
        for (; (left & ~0x7F) != 0; left >>>= 7) {
            int8(left | 0x80);
        }
        return int8(left);
    }

    Request string(String text) {
        byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        return int16(encoded.length).raw(encoded);
    }

    Request compactString(String text) {
        byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        return uvarint(encoded.length + 1).raw(encoded);
    }

    Request array(int count) {
        return isFlexible ? uvarint(count + 1) : int32(count);
    }

    Request noTags() {
        return int8(0);
    }

    Request bytes(byte[] field) {
        return int32(field.length).raw(field);
    }

    /** A large field, which must not change before the request is sent. */
    Request compactBytes(byte[] field, int size) {
        uvarint(size + 1);
        endPart();
        parts.add(ByteBuffer.wrap(field, 0, size));
        return this;
    }

    void writeTo(OutputStream out, int correlationId, String clientId) throws IOException {
        endPart();
        Request head = new Request(apiKey, version, isFlexible);
        int size = 0;
        for (ByteBuffer part : parts) {
            size += part.remaining();
        }
        head.int32(0).int16(apiKey).int16(version).int32(correlationId).string(clientId);
        if (isFlexible) {
            head.noTags();
        }
        ByteBuffer.wrap(head.bytes).putInt(0, head.end - 4 + size);
        out.write(head.bytes, 0, head.end);
        for (ByteBuffer part : parts) {
            out.write(part.array(), part.arrayOffset() + part.position(), part.remaining());
        }
        out.flush();
    }

    private Request raw(byte[] field) {
        reserve(field.length);
        System.arraycopy(field, 0, bytes, end, field.length);
        end += field.length;
        return this;
    }

    private void endPart() {
        if (end > from) {
            parts.add(ByteBuffer.wrap(bytes, from, end - from));
            from = end;
        }
    }

    private void reserve(int more) {
        if (end + more > bytes.length) {
            // Parts that ended keep the old array.
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, end + more));
        }
    }
}
