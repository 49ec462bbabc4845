import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/** Asks the administrator's questions and prints the answers, as `story.fact=value` lines. */
public class Administration {
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
        play("topics", Administration::topics);
        play("cluster", Administration::cluster);
        play("offsets", Administration::offsets);
        play("groups", Administration::groups);
        play("open", Administration::open);
        play("listed", Administration::listed);
        play("fence", Administration::fence);
        play("abort", Administration::abort);
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

    static void topics(String name) throws Exception {
        String topic = prefix + name;
        NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "123456"));
        var created = admin.createTopics(List.of(wanted));
        say(name, "created", created.numPartitions(topic).get() + " partitions, " + created.replicationFactor(topic).get() + " replica");
        say(name, "createdId", created.topicId(topic).get().equals(describe(topic).topicId()));
        say(name, "again", errorOf(() -> admin.createTopics(List.of(wanted)).all().get()));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        say(name, "grown", describe(topic).partitions().size());
        say(name, "shrunk", errorOf(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get()));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var entry = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms");
        say(name, "retention", entry.value() + " " + entry.source());
        say(name, "illegal", errorOf(() -> admin.createTopics(List.of(new NewTopic("no spaces", 1, (short) 1))).all().get()));
        say(name, "unknownConfig", errorOf(() -> admin.createTopics(
            List.of(new NewTopic(topic + "x", 1, (short) 1).configs(Map.of("no.such", "1")))).all().get()));
        admin.deleteTopics(List.of(topic)).all().get();
        say(name, "deleted", !admin.listTopics().names().get().contains(topic));
        say(name, "deletedAgain", errorOf(() -> admin.deleteTopics(List.of(topic)).all().get()));
    }

    static void cluster(String name) throws Exception {
        var cluster = admin.describeCluster();
        say(name, "nodes", cluster.nodes().get().size());
        say(name, "idLength", cluster.clusterId().get().length());
        var features = admin.describeFeatures().featureMetadata().get();
        say(name, "transactionVersion", features.finalizedFeatures().get("transaction.version").maxVersionLevel());
    }

    static void offsets(String name) throws Exception {
        TopicPartition partition = new TopicPartition(prefix + name, 0);
        try (var producer = producer(name)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(partition.topic(), 0, 1000L, null, "first"));
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(partition.topic(), 0, 2000L, null, "open")).get();
            say(name, "earliest", list(partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
            say(name, "latest", list(partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
            say(name, "stable", list(partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
            say(name, "maxTimestamp", list(partition, OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED));
            say(name, "byTime", list(partition, OffsetSpec.forTimestamp(1500), IsolationLevel.READ_UNCOMMITTED));
            producer.abortTransaction();
        }
    }

    static void groups(String name) throws Exception {
        TopicPartition partition = new TopicPartition(prefix + name, 0);
        admin.createTopics(List.of(new NewTopic(partition.topic(), 1, (short) 1))).all().get();
        say(name, "unknown", errorOf(() -> admin.describeConsumerGroups(List.of(prefix + "nobody")).all().get()));
        admin.alterConsumerGroupOffsets(prefix + name, Map.of(partition, new OffsetAndMetadata(7))).all().get();
        var found = admin.listConsumerGroupOffsets(prefix + name).partitionsToOffsetAndMetadata().get();
        say(name, "offset", found.get(partition).offset());
        var group = admin.describeConsumerGroups(List.of(prefix + name)).all().get().get(prefix + name);
        say(name, "state", group.groupState());
        boolean listed = admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().equals(prefix + name));
        say(name, "listed", listed);
    }

    /** An open transaction, as its coordinator and its partition see it. */
    static void open(String name) throws Exception {
        TopicPartition partition = new TopicPartition(prefix + name, 0);
        say(name, "unknown", errorOf(() -> admin.describeTransactions(List.of(prefix + "nobody")).all().get()));
        try (var producer = producer(name)) {
            TransactionDescription idle = describeTransaction(name);
            say(name, "before", idle.state() + " " + idle.topicPartitions() + " " + idle.transactionStartTimeMs());
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(partition.topic(), "open")).get();
            TransactionDescription open = describeTransaction(name);
            say(name, "during", open.state() + " " + open.topicPartitions() + " epoch " + open.producerEpoch()
                + " timeout " + open.transactionTimeoutMs() + " started " + open.transactionStartTimeMs().isPresent());
            ProducerState state = onlyProducer(partition);
            say(name, "producer", "same id " + (state.producerId() == open.producerId()) + " epoch " + state.producerEpoch()
                + " sequence " + state.lastSequence() + " from " + state.currentTransactionStartOffset()
                + " coordinator " + state.coordinatorEpoch());
            producer.commitTransaction();
            state = onlyProducer(partition);
            say(name, "after", "epoch " + state.producerEpoch() + " sequence " + state.lastSequence() + " from "
                + state.currentTransactionStartOffset() + " coordinator " + state.coordinatorEpoch());
        }
    }

    static void listed(String name) throws Exception {
        try (var idle = producer(name + "-idle"); var open = producer(name + "-open")) {
            open.beginTransaction();
            open.send(new ProducerRecord<>(prefix + name, "open")).get();
            long id = describeTransaction(name + "-open").producerId();
            ListTransactionsOptions all = new ListTransactionsOptions();
            say(name, "byId", names(new ListTransactionsOptions().filterProducerIds(List.of(id))));
            say(name, "byPattern", names(new ListTransactionsOptions().filterOnTransactionalIdPattern(prefix + name + "-.*")));
            say(name, "byHalfAPattern", names(new ListTransactionsOptions().filterOnTransactionalIdPattern(prefix + name)));
            say(name, "byState", names(new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))
                .filterOnTransactionalIdPattern(prefix + name + ".*")));
            say(name, "byDuration", names(new ListTransactionsOptions().filterOnDuration(3_600_000)
                .filterOnTransactionalIdPattern(prefix + name + ".*")));
            say(name, "badPattern", errorOf(() -> admin.listTransactions(
                new ListTransactionsOptions().filterOnTransactionalIdPattern("(")).all().get()));
            open.commitTransaction();
        }
    }

    /** An administrator fences a producer in the middle of its transaction. */
    static void fence(String name) throws Exception {
        try (var producer = producer(name)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(prefix + name, "open")).get();
            var result = admin.fenceProducers(List.of(prefix + name));
            result.all().get();
            say(name, "epoch", result.epochId(prefix + name).get());
            say(name, "state", describeTransaction(name).state());
            say(name, "commit", errorOf(producer::commitTransaction));
        }
    }

    /** An administrator aborts the transaction of a producer on one partition: its coordinator is not told. */
    static void abort(String name) throws Exception {
        TopicPartition partition = new TopicPartition(prefix + name, 0);
        try (var producer = producer(name)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(partition.topic(), "open")).get();
            ProducerState state = onlyProducer(partition);
            say(name, "stableBefore", list(partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
            admin.abortTransaction(new AbortTransactionSpec(
                partition, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
            say(name, "stableAfter", list(partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
            say(name, "from", onlyProducer(partition).currentTransactionStartOffset());
            say(name, "state", describeTransaction(name).state());
            producer.abortTransaction();
        }
    }

    static KafkaProducer<String, String> producer(String name) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        config.put("transactional.id", prefix + name);
        config.put("transaction.timeout.ms", "54321");
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static org.apache.kafka.clients.admin.TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    static TransactionDescription describeTransaction(String name) throws Exception {
        return admin.describeTransactions(List.of(prefix + name)).description(prefix + name).get();
    }

    static ProducerState onlyProducer(TopicPartition partition) throws Exception {
        var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        if (states.size() != 1) {
            throw new IllegalStateException(states.toString());
        }
        return states.get(0);
    }

    static long list(TopicPartition partition, OffsetSpec spec, IsolationLevel level) throws Exception {
        return admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(level)).partitionResult(partition).get().offset();
    }

    static Collection<String> names(ListTransactionsOptions options) throws Exception {
        return admin.listTransactions(options).all().get().stream()
            .map(TransactionListing::transactionalId).map(id -> id.substring(prefix.length()))
            .collect(Collectors.toCollection(TreeSet::new));
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
