package fencepost.spark.encode;

import fencepost.spark.kafka.Identity;
import fencepost.spark.kafka.TopicPartition;
import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/**
 * A complete v2 record batch. Its bytes begin with the header, which `finish` fills in when producer and sequence are
 * known. They are not changed after that, so a broker recognizes a batch that is sent again.
 */
public final class RecordBatch {
    static final int HEADER_BYTES = 61;
    private static final int PREFIX_BYTES = 12; // Base offset and length.
    private static final int CHECKED_FROM = 21;
    private static final byte MAGIC = 2;
    private static final int TRANSACTIONAL = 0x10;

    public final TopicPartition where;
    public final int recordCount;
    private final byte[] bytes;
    private final int size;
    private final Codec codec;
    private final long baseTimestamp;
    private final long maxTimestamp;

    private RecordBatch(
            TopicPartition where, int recordCount, byte[] bytes, int size, Codec codec, long baseTimestamp, long maxTimestamp) {
        this.where = where;
        this.recordCount = recordCount;
        this.bytes = bytes;
        this.size = size;
        this.codec = codec;
        this.baseTimestamp = baseTimestamp;
        this.maxTimestamp = maxTimestamp;
    }

    /** plain: room for the header, then the records up to `size`. Records that compression makes larger stay as they are. */
    static RecordBatch of(
            TopicPartition where, int recordCount, byte[] plain, int size, Codec codec, long baseTimestamp, long maxTimestamp) {
        if (codec != Codec.NONE) {
            byte[] smaller = codec.compress(plain, HEADER_BYTES, size, HEADER_BYTES);
            if (smaller.length < size) {
                return new RecordBatch(where, recordCount, smaller, smaller.length, codec, baseTimestamp, maxTimestamp);
            }
        }
        return new RecordBatch(where, recordCount, plain, size, Codec.NONE, baseTimestamp, maxTimestamp);
    }

    public byte[] bytes() {
        return bytes;
    }

    public int size() {
        return size;
    }

    /** The header: producer, sequence and checksum. */
    public void finish(Identity identity, int baseSequence) {
        ByteBuffer header = ByteBuffer.wrap(bytes, 0, HEADER_BYTES);
        header.putLong(0).putInt(size - PREFIX_BYTES).putInt(-1).put(MAGIC).putInt(0);
        header.putShort((short) (TRANSACTIONAL | codec.ordinal())).putInt(recordCount - 1);
        header.putLong(baseTimestamp).putLong(maxTimestamp);
        header.putLong(identity.producerId()).putShort(identity.producerEpoch()).putInt(baseSequence).putInt(recordCount);
        CRC32C checksum = new CRC32C();
        checksum.update(bytes, CHECKED_FROM, size - CHECKED_FROM);
        header.putInt(CHECKED_FROM - 4, (int) checksum.getValue());
    }

    /** Two halves, for a topic that allows less than max.request.size. The second follows the first in sequence. */
    public RecordBatch[] halves() {
        assert recordCount > 1 : "a record cannot be cut";
        int from = codec == Codec.NONE ? HEADER_BYTES : 0;
        byte[] plain = codec == Codec.NONE ? bytes : codec.uncompress(bytes, HEADER_BYTES, size);
        int middle = recordCount / 2;
        int cut = from;
        for (int n = 0; n < middle; n++) {
            cut = next(plain, cut);
        }
        return new RecordBatch[] {part(plain, from, middle), part(plain, cut, recordCount - middle)};
    }

    private static int next(byte[] plain, int at) {
        long length = Varint.read(plain, at);
        return at + Varint.sizeOf(length) + (int) length;
    }

    /** `count` records from `at` on, with times and offsets relative to the first of them. */
    private RecordBatch part(byte[] plain, int at, int count) {
        // The records are no larger than before, but a time relative to another record may take more bytes.
        byte[] target = new byte[HEADER_BYTES + plain.length - at + 10 * count];
        int end = HEADER_BYTES;
        long first = 0;
        long last = Long.MIN_VALUE;
        for (int n = 0; n < count; n++) {
            int after = next(plain, at);
            at += Varint.sizeOf(Varint.read(plain, at)) + 1; // Length and attributes.
            long timestamp = baseTimestamp + Varint.read(plain, at);
            at += Varint.sizeOf(timestamp - baseTimestamp);
            at += Varint.sizeOf(Varint.read(plain, at)); // Offset.
            first = n == 0 ? timestamp : first;
            last = Math.max(last, timestamp);
            end = Varint.write(target, end, 1 + Varint.sizeOf(timestamp - first) + Varint.sizeOf(n) + after - at);
            target[end++] = 0;
            end = Varint.write(target, end, timestamp - first);
            end = Varint.write(target, end, n);
            System.arraycopy(plain, at, target, end, after - at);
            end += after - at;
            at = after;
        }
        return of(where, count, target, end, codec, first, last);
    }
}
