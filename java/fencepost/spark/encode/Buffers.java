package fencepost.spark.encode;

import java.util.ArrayDeque;

/** Buffers that the tasks of this JVM use again and again: large arrays are expensive for Java's memory management. */
public final class Buffers {
    private static final int SMALLEST = 1 << 14;
    /** Those of unusually large record batches are not kept. */
    private static final int LARGEST = 2 << 20;

    private static final long MOST_KEPT_BYTES = Runtime.getRuntime().maxMemory() / 16;
    private static final ArrayDeque<byte[]> free = new ArrayDeque<>();
    private static long keptBytes;

    private Buffers() {}

    static byte[] take() {
        synchronized (free) {
            if (free.isEmpty()) {
                return new byte[SMALLEST];
            }
            keptBytes -= free.peek().length;
            return free.pop();
        }
    }

    /** The caller does not use the buffer any more. */
    public static void giveBack(byte[] buffer) {
        synchronized (free) {
            if (buffer.length <= LARGEST && keptBytes + buffer.length <= MOST_KEPT_BYTES) {
                keptBytes += buffer.length;
                free.push(buffer);
            }
        }
    }
}
