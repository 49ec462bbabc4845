package fencepost.spark.encode;

import fencepost.spark.kafka.PinnedTopic;
import fencepost.spark.kafka.TopicPartition;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The rows of a task as record batches: chooses the partition of each row and appends it to the partition's batch.
 *
 * A record batch is passed on when the next record has no room in it. If the buffers of all open ones together
 * take more than `mostOpenBytes`, the largest are passed on, so the memory does not grow with the number of partitions.
 */
public final class Encoder {
    /** A record batch of this size is worth a request, if there is nothing else to send. */
    private static final int WORTH_SENDING_BYTES = 128 << 10;
    private static final int ROWS_BETWEEN_LOOKS = 64;

    private final Row row;
    private final Headers headers = new Headers();
    private final String topic;
    private final Function<String, PinnedTopic> pin;
    private final int firstTurn;
    private final Codec codec;
    private final int maxBatchBytes;
    private final long mostOpenBytes;
    private final Consumer<RecordBatch> passOn;
    private final BooleanSupplier isIdle;

    private final Map<UTF8String, Outputs> outputs = new HashMap<>();
    private Outputs current;
    private long openBytes;
    private int rowsSinceLook;

    /**
     * topic: wins over the column; null: there is the column. pin: is asked once for each topic. passOn: takes the record
     * batches. isIdle: has it sent all of them?
     */
    public Encoder(
            Columns columns,
            String topic,
            Function<String, PinnedTopic> pin,
            int firstTurn,
            Codec codec,
            int maxBatchBytes,
            long mostOpenBytes,
            Consumer<RecordBatch> passOn,
            BooleanSupplier isIdle) {
        this.row = new Row(columns);
        this.topic = topic;
        this.pin = pin;
        this.firstTurn = firstTurn;
        this.codec = codec;
        this.maxBatchBytes = maxBatchBytes;
        this.mostOpenBytes = mostOpenBytes;
        this.passOn = passOn;
        this.isIdle = isIdle;
    }

    public void add(InternalRow internal) {
        row.read(internal);
        headers.encode(row.headers);
        Outputs of = outputs();
        Builder builder = of.builders[of.partitionOf(row)];
        openBytes -= builder.heldBytes();
        if (!builder.append(row, headers)) {
            passOn.accept(builder.take(codec));
            builder.append(row, headers);
        }
        openBytes += builder.heldBytes();
        if (openBytes > mostOpenBytes) {
            passLargest();
        } else if (++rowsSinceLook == ROWS_BETWEEN_LOOKS) {
            rowsSinceLook = 0;
            if (openBytes > WORTH_SENDING_BYTES && isIdle.getAsBoolean()) {
                passWorthy();
            }
        }
    }

    /** Passes on the remaining record batches. */
    public void finish() {
        open().forEach(this::pass);
    }

    private Outputs outputs() {
        if (topic != null) {
            return current == null ? current = open(topic) : current;
        }
        if (row.topic == null) {
            throw new BadRecord("null topic present in the data. Use the topic option for setting a topic.");
        }
        if (current == null || !current.name.equals(row.topic)) {
            current = outputs.get(row.topic);
            if (current == null) {
                current = open(row.topic.toString());
            }
        }
        return current;
    }

    private Outputs open(String name) {
        Outputs opened = new Outputs(name, pin.apply(name).partitionCount());
        outputs.put(opened.name, opened);
        return opened;
    }

    private void pass(Builder builder) {
        openBytes -= builder.heldBytes();
        passOn.accept(builder.take(codec));
    }

    private void passLargest() {
        List<Builder> largestFirst = open();
        largestFirst.sort(Comparator.comparingInt(Builder::size).reversed());
        for (Builder builder : largestFirst) {
            if (openBytes <= mostOpenBytes / 2) {
                return;
            }
            pass(builder);
        }
    }

    /**
     * So that record batches are sent while the task encodes the next rows, and not all at the end. Those that are half as
     * large go with the first that is worth it: a broker adds all partitions of a request to the transaction at once, and
     * those of several requests one after another.
     */
    private void passWorthy() {
        List<Builder> open = open();
        if (open.stream().anyMatch(builder -> builder.size() >= WORTH_SENDING_BYTES)) {
            open.stream().filter(builder -> builder.size() >= WORTH_SENDING_BYTES / 2).forEach(this::pass);
        }
    }

    private List<Builder> open() {
        List<Builder> found = new ArrayList<>();
        for (Outputs of : outputs.values()) {
            for (Builder builder : of.builders) {
                if (!builder.isEmpty()) {
                    found.add(builder);
                }
            }
        }
        return found;
    }

    /** The partitions of one topic. */
    private final class Outputs {
        final UTF8String name;
        final Builder[] builders;
        private int turn = firstTurn;

        Outputs(String topicName, int partitions) {
            name = UTF8String.fromString(topicName);
            builders = new Builder[partitions];
            // If all partitions begin with buffers of this size, half of the memory is left for those that grow.
            int mostExpectedBytes = (int) (mostOpenBytes / 2 / partitions);
            for (int n = 0; n < partitions; n++) {
                TopicPartition where = new TopicPartition(topicName, n);
                builders[n] = new Builder(where, maxBatchBytes, mostExpectedBytes);
            }
        }

        /** The partition that the row names, or by its key, or the next in turn. */
        int partitionOf(Row of) {
            if (of.hasPartition) {
                if (of.partition < 0 || of.partition >= builders.length) {
                    throw new BadRecord("invalid partition given with row " + of.number() + ": " + of.partition
                            + " is not in the range [0..." + builders.length + ") of topic " + name);
                }
                return of.partition;
            }
            if (of.key != null) {
                return Murmur2.partitionFor(of.key, builders.length);
            }
            turn = turn == Integer.MAX_VALUE ? 0 : turn + 1;
            return turn % builders.length;
        }
    }
}
