import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads a topic, writes every record in capitals to another, and commits both sides in one transaction.
 * Ends when the group has committed as many records as it was told, with exit code 0; or when another program
 * has taken its transactional id, with exit code 3. Prints a line for each transaction.
 */
public class ConsumeProcessProduce {
    public static void main(String[] args) throws InterruptedException {
        String bootstrapServers = args[0], source = args[1], target = args[2], name = args[3];
        long count = Long.parseLong(args[4]);
        // How long the work between reading and committing takes, so that a crash finds it in the middle.
        long pauseMs = Long.parseLong(args[5]);
        boolean fenced = false;

        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrapServers);
        reading.put("group.id", name);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", "20");
        reading.put("session.timeout.ms", "1000");
        reading.put("heartbeat.interval.ms", "100");
        reading.put("reconnect.backoff.max.ms", "100");
        Properties writing = new Properties();
        writing.put("bootstrap.servers", bootstrapServers);
        writing.put("transactional.id", name);
        writing.put("reconnect.backoff.max.ms", "100");

        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
            while (total(done) < count) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (TopicPartition partition : consumer.assignment()) {
                    if (!done.containsKey(partition)) {
                        // A program that was killed has left its progress here.
                        OffsetAndMetadata before = consumer.committed(consumer.assignment()).get(partition);
                        done.put(partition, before == null ? new OffsetAndMetadata(0) : before);
                    }
                }
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(target, record.key(), record.value().toUpperCase()));
                    }
                    producer.flush();
                    Thread.sleep(pauseMs);
                    producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                    producer.commitTransaction();
                    done.putAll(records.nextOffsets());
                    System.out.println("committed " + total(done));
                } catch (ProducerFencedException | InvalidProducerEpochException taken) {
                    throw taken;
                } catch (KafkaException failed) {
                    System.out.println("aborted " + failed.getClass().getSimpleName());
                    producer.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment()) {
                        OffsetAndMetadata position = committed.get(partition);
                        consumer.seek(partition, position == null ? 0 : position.offset());
                    }
                }
            }
        } catch (ProducerFencedException | InvalidProducerEpochException taken) {
            System.out.println("fenced " + taken.getClass().getSimpleName());
            fenced = true;
        }
        System.exit(fenced ? 3 : 0);
    }

    private static long total(Map<TopicPartition, OffsetAndMetadata> offsets) {
        return offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum();
    }
}
