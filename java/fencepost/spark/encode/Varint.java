package fencepost.spark.encode;

/** Kafka's varints: zigzag, then seven bits in each byte; the eighth bit says that more bytes follow. */
final class Varint {
    private Varint() {}

    static int sizeOf(long value) {
        long zigzag = value << 1 ^ value >> 63;
        return (70 - Long.numberOfLeadingZeros(zigzag | 1)) / 7;
    }

    /** Writes the value at `at` and returns the position after it. */
    static int write(byte[] target, int at, long value) {
        long left = value << 1 ^ value >> 63;
        while ((left & ~0x7FL) != 0) {
            target[at++] = (byte) (left | 0x80);
            left >>>= 7;
        }
        target[at++] = (byte) left;
        return at;
    }

    /** Reads the value at `at`. Its size is that of `sizeOf`, because it was written here. */
    static long read(byte[] source, int at) {
        long zigzag = 0;
        for (int shift = 0; ; shift += 7) {
            byte next = source[at++];
            zigzag |= (next & 0x7FL) << shift;
            if (next >= 0) {
                return zigzag >>> 1 ^ -(zigzag & 1);
            }
        }
    }
}
