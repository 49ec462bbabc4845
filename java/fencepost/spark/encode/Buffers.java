package fencepost.spark.encode;

import java.util.ArrayDeque;
import java.util.stream.Stream;

/**
 * Buffers that the tasks of this JVM use again and again: large arrays are expensive for Java's memory management.
 *
 * Their sizes are powers of two, so that a buffer that is used again is less than twice as large as requested.
 */
public final class Buffers {
    /** Smaller buffers are not kept: Java makes them quickly. */
    private static final int SMALLEST = 1 << 14;
    /** Larger buffers, of unusually large record batches, are not kept. */
    private static final int LARGEST = 2 << 20;

    private static final long MOST_KEPT_BYTES = Runtime.getRuntime().maxMemory() / 16;
    private static final Size[] sizes =
            Stream.iterate(SMALLEST, bytes -> bytes <= LARGEST, bytes -> 2 * bytes).map(Size::new).toArray(Size[]::new);
    private static long keptBytes;

    /** The free buffers of one size. */
    private record Size(int bytes, ArrayDeque<byte[]> free) {
        Size(int bytes) {
            this(bytes, new ArrayDeque<>());
        }

        long keptBytes() {
            return (long) bytes * free.size();
        }
    }

    private Buffers() {}

    /** A buffer of at least so many bytes, and less than twice as many. */
    static byte[] take(int bytes) {
        if (bytes > LARGEST) {
            return new byte[bytes];
        }
        int rounded = bytes <= 1 ? 1 : 2 * Integer.highestOneBit(bytes - 1);
        if (rounded >= SMALLEST) {
            synchronized (sizes) {
                byte[] kept = sizes[indexOf(rounded)].free.poll();
                if (kept != null) {
                    keptBytes -= kept.length;
                    return kept;
                }
            }
        }
        return new byte[rounded];
    }

    /** The caller does not use the buffer any more. */
    public static void giveBack(byte[] buffer) {
        int bytes = buffer.length;
        if (bytes < SMALLEST || bytes > LARGEST || Integer.bitCount(bytes) != 1) {
            return;
        }
        synchronized (sizes) {
            sizes[indexOf(bytes)].free.push(buffer);
            keptBytes += bytes;
            while (keptBytes > MOST_KEPT_BYTES) {
                // Drop one of the size with the most free buffers: otherwise buffers of an earlier job could fill the pool.
                keptBytes -= most().free.pop().length;
            }
        }
    }

    private static int indexOf(int bytes) {
        return Integer.numberOfTrailingZeros(bytes) - Integer.numberOfTrailingZeros(SMALLEST);
    }

    private static Size most() {
        Size most = sizes[0];
        for (Size size : sizes) {
            most = size.keptBytes() > most.keptBytes() ? size : most;
        }
        return most;
    }
}
