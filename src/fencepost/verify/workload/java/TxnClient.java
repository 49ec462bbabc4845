import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Kafka's own producer and consumer, by orders: one line each on stdin, words between tabs, percent-encoded.
 *
 * <p>Each order has one answer on stdout: done, with what was asked for; later: the same order may be given again; refused:
 * the transaction can be aborted; broken: the producer cannot continue. Acknowledged records are told in between. Which
 * orders there are, `client.py` decides. Java 11 is enough.
 */
public class TxnClient {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration CLOSE = Duration.ofMillis(500);

    private final PrintStream answers;
    private KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;
    // As it was when the last records came: the offsets of these records are valid for no other generation.
    private ConsumerGroupMetadata group;
    private volatile Exception failedSend;

    TxnClient(PrintStream answers) {
        this.answers = answers;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // Libraries for logging may write there.
        TxnClient client = new TxnClient(answers);
        client.say("ready\t" + AppInfoParser.getVersion());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split("\t");
            for (int i = 0; i < words.length; i++) {
                words[i] = URLDecoder.decode(words[i], StandardCharsets.UTF_8);
            }
            client.answer(words[0], Arrays.asList(words).subList(1, words.length));
        }
        Runtime.getRuntime().halt(0); // Its owner is gone: a killed client sends nothing more.
    }

    private void answer(String order, List<String> words) {
        try {
            say("done" + obey(order, words));
        } catch (TimeoutException e) {
            say("later\t" + nameOf(e));
        } catch (Broken | ProducerFencedException | AuthenticationException | AuthorizationException e) {
            say("broken\t" + nameOf(e));
        } catch (KafkaException e) {
            say("refused\t" + nameOf(e));
        }
    }

    private String obey(String order, List<String> words) {
        switch (order) {
            case "producer":
                producer = new KafkaProducer<>(settings(words), new StringSerializer(), new StringSerializer());
                break;
            case "init":
                producer.initTransactions();
                break;
            case "begin":
                failedSend = null;
                producer.beginTransaction();
                break;
            case "send":
                send(words.get(0), Integer.parseInt(words.get(1)), words.get(2), words.get(3));
                break;
            case "flush":
                producer.flush();
                break;
            case "commit":
                commit();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            case "close-producer":
                producer.close(Duration.ZERO);
                break;
            case "consumer":
                consumer = new KafkaConsumer<>(
                    settings(words.subList(1, words.size())), new StringDeserializer(), new StringDeserializer());
                consumer.subscribe(List.of(words.get(0)));
                break;
            case "poll":
                return poll(Integer.parseInt(words.get(0)));
            case "offsets":
                producer.sendOffsetsToTransaction(offsets(words), group);
                break;
            case "rewind":
                rewind();
                break;
            case "close-consumer":
                consumer.close(CLOSE);
                break;
            default:
                throw new IllegalArgumentException(order);
        }
        return "";
    }

    private void send(String topic, int partition, String key, String value) {
        producer.send(new ProducerRecord<>(topic, partition, key, value), (where, problem) -> {
            if (problem != null) {
                failedSend = problem;
            } else {
                say(String.join("\t", "acked", value, topic, "" + partition, "" + where.offset()));
            }
        });
    }

    private void commit() {
        producer.flush();
        if (failedSend != null) {
            throw new KafkaException(failedSend); // The broker was not asked to commit.
        }
        try {
            producer.commitTransaction();
        } catch (TimeoutException e) {
            throw e;
        } catch (KafkaException e) {
            throw new Broken(e); // It may be committed.
        }
    }

    private String poll(int most) {
        StringBuilder found = new StringBuilder();
        Set<TopicPartition> cut = new HashSet<>();
        int count = 0;
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
            TopicPartition where = new TopicPartition(record.topic(), record.partition());
            if (count < most) {
                found.append('\t').append(String.join("\t", record.topic(), "" + record.partition(), "" + record.offset()));
                count++;
            } else if (cut.add(where)) {
                consumer.seek(where, record.offset());
            }
        }
        group = consumer.groupMetadata();
        return found.toString();
    }

    private void rewind() {
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        for (TopicPartition where : assigned) {
            OffsetAndMetadata offset = committed.get(where);
            if (offset == null) {
                consumer.seekToBeginning(List.of(where));
            } else {
                consumer.seek(where, offset.offset());
            }
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(List<String> words) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (int i = 0; i < words.size(); i += 3) {
            TopicPartition where = new TopicPartition(words.get(i), Integer.parseInt(words.get(i + 1)));
            found.put(where, new OffsetAndMetadata(Long.parseLong(words.get(i + 2))));
        }
        return found;
    }

    private static Map<String, Object> settings(List<String> pairs) {
        Map<String, Object> found = new HashMap<>();
        for (String pair : pairs) {
            int equals = pair.indexOf('=');
            found.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return found;
    }

    /** Kafka's name of the error. Some exceptions only carry the one that tells it. */
    private static String nameOf(Throwable problem) {
        Errors named = Errors.UNKNOWN_SERVER_ERROR;
        for (Throwable each = problem; each != null && named == Errors.UNKNOWN_SERVER_ERROR; each = each.getCause()) {
            named = Errors.forException(each);
        }
        return named.name();
    }

    private synchronized void say(String line) {
        answers.println(line);
    }

    /** A producer that cannot continue. */
    private static class Broken extends KafkaException {
        Broken(Throwable cause) {
            super(cause);
        }
    }
}
