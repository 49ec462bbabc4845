package fencepost.spark.encode;

import com.github.luben.zstd.ZstdInputStream;
import com.github.luben.zstd.ZstdOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.Locale;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import net.jpountz.lz4.LZ4FrameInputStream;
import net.jpountz.lz4.LZ4FrameOutputStream;
import org.xerial.snappy.SnappyInputStream;
import org.xerial.snappy.SnappyOutputStream;

/** Kafka's codecs, in the order of their numbers, with the libraries that Spark brings along. */
public enum Codec {
    NONE(out -> out, in -> in),
    GZIP(GZIPOutputStream::new, GZIPInputStream::new),
    SNAPPY(SnappyOutputStream::new, SnappyInputStream::new),
    // Kafka's readers know blocks of 64 KiB that do not depend on each other.
    LZ4(out -> new LZ4FrameOutputStream(out, LZ4FrameOutputStream.BLOCKSIZE.SIZE_64KB), LZ4FrameInputStream::new),
    ZSTD(ZstdOutputStream::new, ZstdInputStream::new);

    private interface Wrap<T> {
        T around(T stream) throws IOException;
    }

    private final Wrap<OutputStream> output;
    private final Wrap<InputStream> input;

    Codec(Wrap<OutputStream> output, Wrap<InputStream> input) {
        this.output = output;
        this.input = input;
    }

    public static Codec named(String name) {
        return valueOf(name.toUpperCase(Locale.ROOT));
    }

    /** The bytes after `room` unused bytes. */
    byte[] compress(byte[] plain, int from, int to, int room) {
        ByteArrayOutputStream compressed = new ByteArrayOutputStream(room + (to - from) / 2);
        compressed.write(new byte[room], 0, room);
        try (OutputStream out = output.around(compressed)) {
            out.write(plain, from, to - from);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return compressed.toByteArray();
    }

    byte[] uncompress(byte[] compressed, int from, int to) {
        try (InputStream in = input.around(new ByteArrayInputStream(compressed, from, to - from))) {
            return in.readAllBytes();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
