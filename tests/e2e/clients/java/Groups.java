import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Consumers of one group come and go; prints who had what, as `story.fact=value` lines. */
public class Groups {
    static final int PARTITIONS = 6;
    static final Map<String, String> CONSUMER = Map.of("group.protocol", "consumer");

    static String bootstrapServers;
    static String prefix;
    static Admin admin;
    static KafkaProducer<String, String> producer;

    public static void main(String[] args) throws Exception {
        bootstrapServers = args[0];
        prefix = args[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrapServers));
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrapServers), new StringSerializer(), new StringSerializer());
        if (args.length > 2 && args[2].equals("consumer")) {
            comeAndGo("uniform", CONSUMER);
            comeAndGo("range", Map.of("group.protocol", "consumer", "group.remote.assignor", "range"));
            staticMember("static", CONSUMER);
            migrate("migrated");
        } else {
            for (String assignor : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky")) {
                comeAndGo(assignor, Map.of(
                    "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor + "Assignor"));
            }
            staticMember("static", Map.of());
        }
        producer.close();
        admin.close();
    }

    /** One consumer, two, one again, another two; meanwhile records arrive, and each must be read once. */
    static void comeAndGo(String name, Map<String, String> config) throws Exception {
        create(name);
        Member first = new Member(name, config);
        awaitShares(first);
        send(name, 0);
        Member second = new Member(name, config);
        awaitShares(first, second);
        say(name, "revokedByAJoin", first.revoked.size());
        send(name, 100);
        second.leave();
        awaitShares(first);
        send(name, 200);
        Member third = new Member(name, config);
        awaitShares(first, third);
        send(name, 300);
        await(() -> first.values.size() + second.values.size() + third.values.size() >= 120, "all records came");
        first.leave();
        third.leave();
        Set<String> values = new HashSet<>();
        Stream.of(first, second, third).forEach(member -> values.addAll(member.values));
        int read = first.values.size() + second.values.size() + third.values.size();
        say(name, "records", read + " read, " + values.size() + " different");
    }

    /** A member with a name of its own leaves and returns before its session ends: there is no rebalance. */
    static void staticMember(String name, Map<String, String> config) throws Exception {
        create(name);
        Member stays = new Member(name, with(config, "group.instance.id", "stays"));
        Member goes = new Member(name, with(config, "group.instance.id", "goes"));
        awaitShares(stays, goes);
        Set<TopicPartition> had = goes.assigned();
        stays.revoked.clear();
        goes.leave();
        Member back = new Member(name, with(config, "group.instance.id", "goes"));
        await(() -> !back.assigned().isEmpty(), "the member is back");
        say(name, "same", back.assigned().equals(had));
        say(name, "revoked", stays.revoked.size());
        back.leave();
        stays.leave();
    }

    /** The members of a classic group are replaced, one by one, by members of the consumer protocol; and back. */
    static void migrate(String name) throws Exception {
        create(name);
        Member oldFirst = new Member(name, Map.of());
        Member oldSecond = new Member(name, Map.of());
        awaitShares(oldFirst, oldSecond);
        send(name, 0);
        Member first = new Member(name, CONSUMER);
        awaitShares(oldFirst, oldSecond, first);
        send(name, 100);
        oldFirst.leave();
        awaitShares(oldSecond, first);
        oldSecond.leave();
        awaitShares(first);
        send(name, 200);
        Member again = new Member(name, Map.of());
        awaitShares(first, again);
        first.leave();
        awaitShares(again);
        send(name, 300);
        List<Member> all = List.of(oldFirst, oldSecond, first, again);
        await(() -> all.stream().mapToInt(member -> member.values.size()).sum() >= 120, "all records came");
        again.leave();
        Set<String> values = new HashSet<>();
        all.forEach(member -> values.addAll(member.values));
        say(name, "records", all.stream().mapToInt(member -> member.values.size()).sum() + " read, "
            + values.size() + " different");
    }

    static Map<String, String> with(Map<String, String> config, String name, String value) {
        Map<String, String> more = new HashMap<>(config);
        more.put(name, value);
        return more;
    }

    static void create(String name) throws Exception {
        admin.createTopics(List.of(new NewTopic(prefix + name, PARTITIONS, (short) 1))).all().get();
    }

    static void send(String name, int from) {
        for (int number = from; number < from + 30; number++) {
            producer.send(new ProducerRecord<>(prefix + name, number % PARTITIONS, null, "" + number));
        }
        producer.flush();
    }

    /** Wait until the members have all partitions between them, in equal parts. */
    static void awaitShares(Member... members) throws Exception {
        await(() -> {
            Set<TopicPartition> all = new HashSet<>();
            boolean fair = true;
            for (Member member : members) {
                fair &= member.assigned().size() == PARTITIONS / members.length;
                all.addAll(member.assigned());
            }
            return fair && all.size() == PARTITIONS;
        }, members.length + " members share");
    }

    static void await(BooleanSupplier condition, String what) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("never so: " + what);
            }
            Thread.sleep(5);
        }
    }

    static void say(String name, String fact, Object value) {
        System.out.println(name + "." + fact + "=" + value);
    }

    /** A consumer that is polled all the time, in a thread of its own. */
    static class Member implements ConsumerRebalanceListener {
        final ConcurrentLinkedQueue<String> values = new ConcurrentLinkedQueue<>();
        final List<TopicPartition> revoked = new ArrayList<>();
        private final Set<TopicPartition> held = new HashSet<>();
        private volatile boolean leaving;
        private final Thread thread;

        Member(String name, Map<String, String> more) {
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrapServers);
            config.put("group.id", prefix + name);
            config.put("auto.offset.reset", "earliest");
            if (!more.containsKey("group.protocol")) {
                config.put("heartbeat.interval.ms", "100");
            }
            config.put("fetch.max.wait.ms", "20");
            config.putAll(more);
            thread = new Thread(() -> {
                try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                    consumer.subscribe(List.of(prefix + name), this);
                    while (!leaving) {
                        consumer.poll(Duration.ofMillis(20)).forEach(record -> values.add(record.value()));
                    }
                }
            });
            thread.start();
        }

        synchronized Set<TopicPartition> assigned() {
            return new HashSet<>(held);
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join();
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            held.addAll(partitions);
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            held.removeAll(partitions);
            revoked.addAll(partitions);
        }
    }
}
