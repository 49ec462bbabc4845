import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/** Pays each order, with at_least_once (wrong) or exactly_once_v2 (right): GUARANTEE FOLDER SOURCE TARGET... */
public class Copying {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("application.id", "tills");
        config.put("bootstrap.servers", System.getenv("FENCEPOST_BOOTSTRAP"));
        config.put("processing.guarantee", args[0]);
        // Two copies on one machine need two folders.
        config.put("state.dir", args[1] + "/" + ProcessHandle.current().pid());
        config.put("commit.interval.ms", args[0].equals("exactly_once_v2") ? "100" : "5000");
        config.put("producer.transaction.timeout.ms", "10000");
        config.put("main.consumer.session.timeout.ms", "6000");
        config.put("main.consumer.heartbeat.interval.ms", "500");
        config.put("main.consumer.auto.offset.reset", "earliest");
        // Streams sets read_committed with exactly_once_v2 only.
        config.put("main.consumer.isolation.level", "read_committed");

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> paid = builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .mapValues(order -> "paid " + order);
        for (String target : Arrays.copyOfRange(args, 3, args.length)) {
            paid.to(target, Produced.with(Serdes.String(), Serdes.String()));
        }
        new KafkaStreams(builder.build(), config).start();
    }
}
