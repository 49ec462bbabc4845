package fencepost.spark.lease;

import fencepost.spark.kafka.TopicPartition;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The messages about leases, which a task sends and receives for every few record batches. The other messages are written and
 * read by Jackson. For these it would become so hot that Java's compiler optimizes it, and in the first writes of a session
 * that takes more time than the messages.
 *
 * Their form is that of Python's `lease/wire.py`. Topics exist in Kafka, so nothing in their names needs an escape.
 */
final class LeaseMessages {
    private static final byte[] GRANTED = ascii("{\"granted\":{");
    private static final byte[] WITHIN = ascii("},\"within\":");

    private LeaseMessages() {}

    static byte[] acquire(Map<TopicPartition, Long> wants) {
        return ascii("{\"op\":\"acquire\",\"wants\":" + byTopic(wants) + "}");
    }

    static byte[] release(Map<TopicPartition, Long> records, long bytes) {
        return ascii("{\"op\":\"release\",\"records\":" + byTopic(records) + ",\"bytes\":" + bytes + "}");
    }

    /** The leases that an answer grants, for record batches of so many records; null: it is another answer. */
    static List<Lease> granted(byte[] answer, Map<TopicPartition, Long> wants) {
        Reader in = new Reader(answer);
        if (!in.skip(GRANTED)) {
            return null;
        }
        List<TopicPartition> partitions = new ArrayList<>();
        List<Integer> sequences = new ArrayList<>();
        do {
            String topic = in.name();
            do {
                partitions.add(new TopicPartition(topic, (int) in.number()));
                in.expect(',');
                sequences.add((int) in.number());
            } while (in.skip(','));
            in.expect(']');
        } while (in.skip(','));
        in.expect(WITHIN);
        long withinMs = in.number();
        List<Lease> leases = new ArrayList<>();
        for (int n = 0; n < partitions.size(); n++) {
            TopicPartition where = partitions.get(n);
            leases.add(new Lease(where, sequences.get(n), wants.get(where).intValue(), withinMs));
        }
        return leases;
    }

    /** One number for each partition: {"topic":[partition,number,partition,number ...]}. */
    private static String byTopic(Map<TopicPartition, Long> numbers) {
        Map<String, StringBuilder> byTopic = new LinkedHashMap<>();
        numbers.forEach((where, number) -> {
            StringBuilder text = byTopic.computeIfAbsent(where.topic(), topic -> new StringBuilder());
            text.append(text.length() == 0 ? "" : ",").append(where.partition()).append(',').append(number.longValue());
        });
        StringBuilder all = new StringBuilder();
        byTopic.forEach((topic, text) -> {
            assert topic.indexOf('"') < 0 && topic.indexOf('\\') < 0 : topic;
            all.append(all.length() == 0 ? "{\"" : ",\"").append(topic).append("\":[").append(text).append(']');
        });
        return all.append('}').toString();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static final class Reader {
        private final byte[] body;
        private int at;

        Reader(byte[] body) {
            this.body = body;
        }

        boolean skip(char next) {
            boolean isNext = at < body.length && body[at] == next;
            at += isNext ? 1 : 0;
            return isNext;
        }

        boolean skip(byte[] next) {
            for (int n = 0; n < next.length; n++) {
                if (at + n >= body.length || body[at + n] != next[n]) {
                    return false;
                }
            }
            at += next.length;
            return true;
        }

        void expect(char next) {
            if (!skip(next)) {
                throw unreadable();
            }
        }

        void expect(byte[] next) {
            if (!skip(next)) {
                throw unreadable();
            }
        }

        /** "topic":[ */
        String name() {
            expect('"');
            int from = at;
            while (at < body.length && body[at] != '"') {
                at++;
            }
            String name = new String(body, from, at - from, StandardCharsets.US_ASCII);
            expect('"');
            expect(':');
            expect('[');
            return name;
        }

        long number() {
            int from = at;
            long number = 0;
            while (at < body.length && body[at] >= '0' && body[at] <= '9') {
                number = 10 * number + body[at++] - '0';
            }
            if (at == from) {
                throw unreadable();
            }
            return number;
        }

        private IllegalStateException unreadable() {
            String text = new String(body, StandardCharsets.UTF_8);
            return new IllegalStateException("the driver's answer is not what it should be at byte " + at + ": " + text);
        }
    }
}
