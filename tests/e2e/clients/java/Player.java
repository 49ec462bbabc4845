import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Plays the steps of players.py with Kafka's own client: a step a line on stdin, what came of it a line on stdout. */
public class Player {
    static String bootstrapServers;
    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    static final Map<String, Mover> movers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        bootstrapServers = args[0];
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("value", play(json.readTree(line)));
            } catch (Exception failed) {
                Throwable cause = failed instanceof ExecutionException ? failed.getCause() : failed;
                answer.put("error", cause.getClass().getSimpleName());
                answer.put("text", String.valueOf(cause.getMessage()));
            }
            System.out.println(json.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static Object play(JsonNode step) throws Exception {
        String name = step.path("name").asText();
        switch (step.get("do").asText()) {
            case "hello":
                return Map.of("client", "java", "version", AppInfoParser.getVersion());
            case "open":
                open(name, step);
                return null;
            case "begin":
                producers.get(name).beginTransaction();
                return null;
            case "send":
                List<ProducerRecord<String, String>> records = new ArrayList<>();
                step.get("values").forEach(value -> records.add(new ProducerRecord<>(
                    step.get("topic").asText(), step.get("partition").asInt(), null, value.asText())));
                send(producers.get(name), records);
                return null;
            case "commit":
                producers.get(name).commitTransaction();
                return null;
            case "abort":
                producers.get(name).abortTransaction();
                return null;
            case "close":
                producers.remove(name).close();
                return null;
            case "read":
                return read(step);
            case "mover":
                open(name, step);
                movers.put(name, new Mover(producers.get(name), step));
                return null;
            case "move":
                return movers.get(name).move(step.get("count").asInt(), step.get("end").asText());
            case "process":
                movers.get(name).start();
                return null;
            case "progress":
                return movers.get(name).progress();
            case "stop":
                return movers.get(name).end();
            default:
                throw new IllegalArgumentException("no such step: " + step);
        }
    }

    static void open(String name, JsonNode step) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        if (step.has("request_ms")) {
            config.put("request.timeout.ms", step.get("request_ms").asInt());
        }
        String transactionalId = step.path("transactional_id").asText();
        if (!transactionalId.isEmpty()) {
            config.put("transactional.id", transactionalId);
            config.put("transaction.timeout.ms", step.path("timeout_ms").asInt(60_000));
        }
        producers.put(name, new KafkaProducer<>(config, new StringSerializer(), new StringSerializer()));
        if (!transactionalId.isEmpty()) {
            producers.get(name).initTransactions();
        }
    }

    /** Wait until the broker has taken every record. */
    static void send(KafkaProducer<String, String> producer, List<ProducerRecord<String, String>> records)
            throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        records.forEach(record -> sent.add(producer.send(record)));
        producer.flush();
        for (Future<?> one : sent) {
            one.get();
        }
    }

    static KafkaConsumer<String, String> consumer(Map<String, String> more) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        // Closing waits for the fetch that is under way.
        config.put("fetch.max.wait.ms", "20");
        config.putAll(more);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    /** The values in each partition, up to the one that marks the end. */
    static List<List<String>> read(JsonNode step) {
        List<TopicPartition> partitions = new ArrayList<>();
        List<List<String>> values = new ArrayList<>();
        for (int index = 0; index < step.get("partitions").asInt(); index++) {
            partitions.add(new TopicPartition(step.get("topic").asText(), index));
            values.add(new ArrayList<>());
        }
        int left = partitions.size();
        try (var consumer = consumer(Map.of("isolation.level", step.get("isolation").asText()))) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (record.value().equals(step.get("until").asText())) {
                        left--;
                    } else {
                        values.get(record.partition()).add(record.value());
                    }
                }
            }
        }
        return values;
    }

    /** Takes records from a topic, as a member of a group, and sends them to another, offsets and all. */
    static class Mover extends Thread {
        final KafkaProducer<String, String> producer;
        final KafkaConsumer<String, String> consumer;
        final String source;
        final String target;
        volatile boolean isStopping;
        volatile int moved;
        volatile Exception error;

        Mover(KafkaProducer<String, String> producer, JsonNode step) {
            this.producer = producer;
            source = step.get("source").asText();
            target = step.get("target").asText();
            consumer = consumer(groupSettings(step));
            consumer.subscribe(List.of(source));
            setDaemon(true);
        }

        static Map<String, String> groupSettings(JsonNode step) {
            Map<String, String> config = new HashMap<>(Map.of(
                "group.id", step.get("group").asText(),
                "isolation.level", "read_committed",
                "max.poll.records", "10"));
            if (step.path("protocol").asText().equals("consumer")) {
                config.put("group.protocol", "consumer");
            } else {
                config.put("session.timeout.ms", step.get("session_ms").asText());
                config.put("heartbeat.interval.ms", "100");
            }
            if (step.has("request_ms")) {
                config.put("request.timeout.ms", step.get("request_ms").asText());
                // A member waits that long, and five seconds more, for the answer to JoinGroup.
                config.put("max.poll.interval.ms", "10000");
            }
            return config;
        }

        List<String> move(int count, String end) throws Exception {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            while (records.size() < count) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (records.size() < count) {
                        records.add(record);
                    } else {
                        // More than was asked for: it comes again.
                        consumer.seek(new TopicPartition(source, record.partition()), record.offset());
                        break;
                    }
                }
            }
            producer.beginTransaction();
            send(records);
            if (end.equals("commit")) {
                producer.commitTransaction();
            } else if (end.equals("abort")) {
                abort();
            }
            return records.stream().map(ConsumerRecord::value).toList();
        }

        void send(List<ConsumerRecord<String, String>> records) throws Exception {
            List<ProducerRecord<String, String>> copies = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                copies.add(new ProducerRecord<>(target, record.partition(), null, record.value()));
                offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            Player.send(producer, copies);
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        }

        /** And go back to where the group is. */
        void abort() {
            producer.abortTransaction();
            consumer.committed(consumer.assignment()).forEach((partition, committed) ->
                consumer.seek(partition, committed == null ? 0 : committed.offset()));
        }

        @Override
        public void run() {
            try {
                while (!isStopping) {
                    List<ConsumerRecord<String, String>> records = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(50)).forEach(records::add);
                    if (!records.isEmpty()) {
                        moveAll(records);
                    }
                }
            } catch (Exception failed) {
                error = failed;
            } finally {
                consumer.close();
            }
        }

        void moveAll(List<ConsumerRecord<String, String>> records) throws Exception {
            producer.beginTransaction();
            try {
                send(records);
                producer.commitTransaction();
                moved += records.size();
            } catch (CommitFailedException anotherGeneration) {
                abort();
            }
        }

        int progress() throws Exception {
            if (error != null) {
                throw error;
            }
            return moved;
        }

        int end() throws Exception {
            isStopping = true;
            join();
            return progress();
        }
    }
}
