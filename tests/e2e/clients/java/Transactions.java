import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Plays small stories with transactions and prints what came of each, as `story.fact=value` lines. The topics and
 * ids of a story begin with a prefix, so that several runs can share a broker. A story that fails prints its error.
 */
public class Transactions {
    interface Story {
        void play(String name) throws Exception;
    }

    static String bootstrapServers;
    static String prefix;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrapServers = args[0];
        prefix = args[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrapServers));
        play("ends", Transactions::ends);
        play("interleaved", name -> interleaved(name, args[2]));
        play("fenced", Transactions::fenced);
        play("fencedWrite", Transactions::fencedWrite);
        play("timeout", Transactions::timeout);
        play("offsets", Transactions::offsets);
        play("replaced", Transactions::replaced);
        play("empty", Transactions::empty);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            play("codec." + codec, name -> codec(name, codec));
        }
        admin.close();
    }

    static void play(String name, Story story) {
        try {
            story.play(name);
        } catch (Exception failed) {
            failed.printStackTrace();
            say(name, "error", failed);
        }
    }

    /** Each transaction has an epoch of its own, whether it commits or aborts. */
    static void ends(String name) throws Exception {
        try (var producer = producer(name)) {
            for (String outcome : List.of("commit", "abort", "commit")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(prefix + name, outcome)).get();
                say(name, "state." + outcome, describe(name).state());
                if (outcome.equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            say(name, "state", describe(name).state());
            say(name, "epoch", describe(name).producerEpoch());
        }
        sayWhatIsSeen(name);
    }

    /** Two transactional producers and a plain one take turns on one partition, as the steps say. */
    static void interleaved(String name, String steps) throws Exception {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        producers.put("a", producer(name + "-a"));
        producers.put("b", producer(name + "-b"));
        producers.put("plain", plain("none"));
        Set<String> open = new HashSet<>(Set.of("plain"));
        for (String step : steps.split(";")) {
            String[] words = step.split(" ");
            var producer = producers.get(words[0]);
            if (words[1].equals("send")) {
                if (open.add(words[0])) {
                    producer.beginTransaction();
                }
                producer.send(new ProducerRecord<>(prefix + name, words[2])).get();
            } else if (words[1].equals("commit")) {
                producer.commitTransaction();
                open.remove(words[0]);
            } else {
                producer.abortTransaction();
                open.remove(words[0]);
            }
        }
        producers.values().forEach(KafkaProducer::close);
        sayWhatIsSeen(name);
    }

    /** A second producer takes over the transactional id while the first has an open transaction. */
    static void fenced(String name) throws Exception {
        try (var first = producer(name)) {
            first.beginTransaction();
            first.send(new ProducerRecord<>(prefix + name, "zombie")).get();
            try (var second = producer(name)) {
                say(name, "commit", errorOf(first::commitTransaction));
                second.beginTransaction();
                second.send(new ProducerRecord<>(prefix + name, "heir"));
                second.commitTransaction();
            }
        }
        sayWhatIsSeen(name);
    }

    static void fencedWrite(String name) throws Exception {
        try (var first = producer(name); var second = producer(name)) {
            second.beginTransaction();
            second.send(new ProducerRecord<>(prefix + name, "heir")).get();
            first.beginTransaction();
            say(name, "send", errorOf(() -> first.send(new ProducerRecord<>(prefix + name, "zombie")).get()));
            say(name, "commit", errorOf(first::commitTransaction));
            second.commitTransaction();
        }
        sayWhatIsSeen(name);
    }

    /** The broker aborts a transaction that takes too long, and its producer cannot commit it any more. */
    static void timeout(String name) throws Exception {
        try (var producer = producer(name, Map.of("transaction.timeout.ms", "300"))) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(prefix + name, "late")).get();
            while (describe(name).state() != TransactionState.COMPLETE_ABORT) {
                Thread.sleep(10);
            }
            say(name, "commit", errorOf(producer::commitTransaction));
        }
        sayWhatIsSeen(name);
    }

    /** Offsets in a transaction are pending until it ends: readers that want stable offsets wait for that. */
    static void offsets(String name) throws Exception {
        TopicPartition partition = new TopicPartition(prefix + name, 0);
        try (var plain = plain("none"); var producer = producer(name); var consumer = consumer(name, "read_committed")) {
            plain.send(new ProducerRecord<>(prefix + name, "input")).get();
            ConsumerGroupMetadata group = consumer.groupMetadata();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1)), group);
            say(name, "pending", errorOf(() -> consumer.committed(Set.of(partition), Duration.ofMillis(200))));
            producer.commitTransaction();
            say(name, "committed", consumer.committed(Set.of(partition)).get(partition).offset());
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(5)), group);
            producer.abortTransaction();
            say(name, "aborted", consumer.committed(Set.of(partition)).get(partition).offset());
        }
    }

    /** Offsets of a member that a newer generation has left behind are refused (KIP-447). */
    static void replaced(String name) throws Exception {
        TopicPartition partition = new TopicPartition(prefix + name, 0);
        try (var plain = plain("none"); var producer = producer(name)) {
            plain.send(new ProducerRecord<>(prefix + name, "input")).get();
            ConsumerGroupMetadata outdated;
            try (var early = consumer(name, "read_committed")) {
                early.subscribe(List.of(prefix + name));
                while (early.poll(Duration.ofMillis(50)).isEmpty()) {}
                outdated = early.groupMetadata();
            }
            producer.beginTransaction();
            say(name, "offsets", errorOf(() ->
                producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1)), outdated)));
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(prefix + name, "after"));
            producer.commitTransaction();
        }
        sayWhatIsSeen(name);
    }

    /** A transaction without records. */
    static void empty(String name) throws Exception {
        try (var producer = producer(name)) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(prefix + name, "after"));
            producer.commitTransaction();
        }
        sayWhatIsSeen(name);
    }

    static void codec(String name, String codec) throws Exception {
        try (var producer = plain(codec)) {
            for (int number = 0; number < 20; number++) {
                producer.send(new ProducerRecord<>(prefix + name, "text " + number));
            }
        }
        sayWhatIsSeen(name);
    }

    static KafkaProducer<String, String> producer(String name) {
        return producer(name, Map.of());
    }

    static KafkaProducer<String, String> producer(String name, Map<String, String> more) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        config.put("transactional.id", prefix + name);
        config.putAll(more);
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static KafkaProducer<String, String> plain(String codec) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        config.put("compression.type", codec);
        config.put("linger.ms", "20");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String name, String isolationLevel) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        config.put("group.id", prefix + name);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", isolationLevel);
        // Closing waits for the fetch that is under way.
        config.put("fetch.max.wait.ms", "20");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static TransactionDescription describe(String name) throws Exception {
        return admin.describeTransactions(List.of(prefix + name)).description(prefix + name).get();
    }

    /** What readers of both isolation levels find on the story's topic, up to its end. */
    static void sayWhatIsSeen(String name) {
        for (String isolationLevel : List.of("read_committed", "read_uncommitted")) {
            List<String> values = new ArrayList<>();
            TopicPartition partition = new TopicPartition(prefix + name, 0);
            try (var consumer = consumer(name + "-reader", isolationLevel)) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                while (consumer.position(partition) < end) {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
                }
            }
            say(name, isolationLevel, String.join(",", values));
        }
    }

    interface Attempt {
        void run() throws Exception;
    }

    /** The simple name of what an attempt threw, or `none`. */
    static String errorOf(Attempt attempt) {
        try {
            attempt.run();
            return "none";
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            return failed.getClass().getSimpleName();
        }
    }

    static void say(String name, String fact, Object value) {
        System.out.println(name + "." + fact + "=" + value);
    }
}
