import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts the records of each key with exactly_once_v2, and writes each new count: SERVERS SOURCE TARGET FOLDER TIMEOUT. */
public class Counting {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("application.id", "counting");
        config.put("bootstrap.servers", args[0]);
        config.put("state.dir", args[3]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("num.stream.threads", "2");
        config.put("commit.interval.ms", "50");
        // Every count is written, not only the last before a commit.
        config.put("statestore.cache.max.bytes", "0");
        for (String client : new String[] {"producer", "main.consumer", "restore.consumer", "admin"}) {
            config.put(client + ".request.timeout.ms", args[4]);
        }
        config.put("admin.default.api.timeout.ms", "60000");
        config.put("main.consumer.session.timeout.ms", "6000");
        config.put("main.consumer.heartbeat.interval.ms", "200");
        config.put("main.consumer.auto.offset.reset", "earliest");
        // A member waits that long, and five seconds more, for the answer to JoinGroup.
        config.put("main.consumer.max.poll.interval.ms", "10000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> count.toString())
            .to(args[2], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }
}
