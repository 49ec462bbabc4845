package fencepost.spark.encode;

import java.nio.ByteOrder;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The hash of a key and the partition that it goes to, as in Kafka's `Utils.murmur2` and its default partitioner. */
public final class Murmur2 {
    private static final int SEED = 0x9747B28C;
    private static final int MULTIPLIER = 0x5BD1E995;
    private static final boolean IS_LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    private Murmur2() {}

    public static int partitionFor(UTF8String key, int partitions) {
        return (hash(key.getBaseObject(), key.getBaseOffset(), key.numBytes()) & 0x7FFFFFFF) % partitions;
    }

    static int hash(Object base, long at, int length) {
        int hash = SEED ^ length;
        long end = at + (length & ~3);
        for (; at < end; at += 4) {
            int word = Platform.getInt(base, at);
            word = (IS_LITTLE_ENDIAN ? word : Integer.reverseBytes(word)) * MULTIPLIER;
            word = (word ^ word >>> 24) * MULTIPLIER;
            hash = hash * MULTIPLIER ^ word;
        }
        int rest = length & 3;
        if (rest > 0) {
            for (int n = rest - 1; n >= 0; n--) {
                hash ^= (Platform.getByte(base, end + n) & 0xFF) << 8 * n;
            }
            hash *= MULTIPLIER;
        }
        hash = (hash ^ hash >>> 13) * MULTIPLIER;
        return hash ^ hash >>> 15;
    }
}
