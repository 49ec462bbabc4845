import com.sun.management.ThreadMXBean;
import fencepost.spark.encode.Buffers;
import fencepost.spark.encode.Codec;
import fencepost.spark.encode.Columns;
import fencepost.spark.encode.Encoder;
import fencepost.spark.kafka.PinnedTopic;
import java.lang.management.ManagementFactory;
import java.util.UUID;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * TaskMemory PARTITIONS HOT ROWS: encodes rows of 1 KiB as a task does, with a sender that is always done at once.
 *
 * Of 40 rows, 39 go to the hot partitions, and one to the others. Prints the megabytes that are held at the end, those
 * that were allocated, the number of record batches, and how many of them were passed on before the last row.
 */
public final class TaskMemory {
    private static final int RECORD_BATCH_BYTES = 1_047_552;
    private static final long MOST_OPEN_BYTES = 16 << 20;
    private static int passedOn;

    public static void main(String[] arguments) {
        int partitions = Integer.parseInt(arguments[0]);
        int hot = Integer.parseInt(arguments[1]);
        int rows = Integer.parseInt(arguments[2]);
        boolean isIdle = Boolean.parseBoolean(arguments[3]);
        usedBytes(); // The first garbage collection leaves more than the next one.
        long before = usedBytes();
        Encoder encoder = new Encoder(
                new Columns(-1, 0, -1, -1, -1, 1, false, true, false),
                "out",
                name -> new PinnedTopic(new UUID(1, 1), partitions),
                0,
                Codec.NONE,
                RECORD_BATCH_BYTES,
                MOST_OPEN_BYTES,
                batch -> {
                    passedOn++;
                    Buffers.giveBack(batch.bytes());
                },
                () -> isIdle);
        GenericInternalRow row = new GenericInternalRow(2);
        row.update(0, UTF8String.fromString("x".repeat(1024)));
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long allocatedBefore = threads.getCurrentThreadAllocatedBytes();
        for (int n = 0; n < rows; n++) {
            boolean isCold = n % 40 == 0 && partitions > hot;
            row.update(1, isCold ? hot + n / 40 % (partitions - hot) : n % hot);
            encoder.add(row);
        }
        long allocated = threads.getCurrentThreadAllocatedBytes() - allocatedBefore;
        long held = usedBytes() - before;
        int early = passedOn;
        encoder.finish();
        System.out.println((held >> 20) + " " + (allocated >> 20) + " " + passedOn + " " + early);
    }

    private static long usedBytes() {
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
