import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * For each key of a file, one in hexadecimal a line: its hash, and its partition among each of the counts that follow
 * the file's name.
 */
public class DefaultPartitioner {
    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            byte[] key = HexFormat.of().parseHex(line);
            out.append(Utils.murmur2(key));
            for (int n = 1; n < args.length; n++) {
                out.append(' ').append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(args[n])));
            }
            out.append('\n');
        }
        System.out.print(out);
    }
}
