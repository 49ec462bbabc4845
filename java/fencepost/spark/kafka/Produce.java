package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.BrokerError;
import fencepost.spark.kafka.ClientError.Unreachable;
import fencepost.spark.kafka.ErrorCode.Verdict;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/**
 * Produce requests to the leaders of partitions: all are sent first, and then the answers are read.
 *
 * Small record batches for one broker go into one request. Large ones are requests of their own, so that the broker writes one
 * while the next arrives. A lost connection counts as NETWORK_EXCEPTION.
 */
public final class Produce {
    private static final int PRODUCE = 0;
    private static final int FIRST_VERSION = 9; // The first with compact fields.
    private static final int BY_TOPIC_ID = 13;
    private static final int REQUEST_TIMEOUT_MS = 30_000;
    private static final long REQUEST_BYTES = 1 << 20;

    /** The bytes of a record batch. */
    public record Payload(byte[] bytes, int size) {}

    /** A broker's answer for one partition. */
    public record Answer(int code, String message) {}

    /** A request whose answer is still to be read. */
    private record Sent(BrokerConnection leader, List<TopicPartition> partitions) {}

    private final Cluster cluster;
    private final String transactionalId;
    private final int version;
    private final Map<String, PinnedTopic> topics;

    /** version: the highest that may be used. topics: has every topic that a record batch is for. */
    public Produce(Cluster cluster, String transactionalId, int version, Map<String, PinnedTopic> topics) {
        this.cluster = cluster;
        this.transactionalId = transactionalId;
        this.version = version;
        this.topics = topics;
    }

    /** beganNanos: when these record batches were sent first. Raises Unreachable if no broker was ever reached. */
    public Map<TopicPartition, Answer> send(Map<TopicPartition, Payload> payloads, long beganNanos) {
        Map<TopicPartition, Answer> answers = new HashMap<>();
        Map<BrokerConnection, List<TopicPartition>> byLeader = new LinkedHashMap<>();
        for (TopicPartition where : payloads.keySet()) {
            try {
                byLeader.computeIfAbsent(cluster.leader(where), leader -> new ArrayList<>()).add(where);
            } catch (BrokerError e) {
                answers.put(where, new Answer(e.code, e.getMessage()));
            } catch (Unreachable e) {
                cluster.checkFirstContact(e, beganNanos);
                answers.put(where, lost(e));
            }
        }
        List<Sent> sent = new ArrayList<>();
        byLeader.forEach((leader, partitions) -> {
            for (List<TopicPartition> some : split(partitions, payloads)) {
                orLost(leader, some, answers, () -> {
                    leader.send(request(leader, payloads, some), "ProduceRequest");
                    sent.add(new Sent(leader, some));
                });
            }
        });
        for (Sent one : sent) {
            Map<TopicPartition, Answer> said = new HashMap<>();
            orLost(one.leader, one.partitions, answers, () -> {
                one.leader.receive("ProduceRequest", reply -> read(reply, versionOf(one.leader), said));
                answers.putAll(said);
            });
        }
        refresh(answers);
        answers.replaceAll(this::judged);
        return answers;
    }

    /** Requests of about REQUEST_BYTES each, but at least one partition. */
    private static List<List<TopicPartition>> split(
            List<TopicPartition> partitions, Map<TopicPartition, Payload> payloads) {
        List<List<TopicPartition>> requests = new ArrayList<>();
        long bytes = REQUEST_BYTES;
        for (TopicPartition where : partitions) {
            int size = payloads.get(where).size;
            if (bytes + size > REQUEST_BYTES) {
                requests.add(new ArrayList<>());
                bytes = 0;
            }
            requests.get(requests.size() - 1).add(where);
            bytes += size;
        }
        return requests;
    }

    private int versionOf(BrokerConnection leader) {
        int found = leader.version(PRODUCE, version);
        if (found < FIRST_VERSION) {
            throw new ClientError("ProduceRequest: " + leader.address + " serves at most v" + found
                    + ", this client speaks v" + FIRST_VERSION + " to v" + version);
        }
        return found;
    }

    private void orLost(
            BrokerConnection leader,
            List<TopicPartition> partitions,
            Map<TopicPartition, Answer> answers,
            Runnable exchange) {
        try {
            exchange.run();
        } catch (Unreachable e) {
            cluster.drop(leader);
            partitions.forEach(where -> answers.put(where, lost(e)));
        }
    }

    private Request request(
            BrokerConnection leader,
            Map<TopicPartition, Payload> payloads,
            List<TopicPartition> partitions) {
        int used = versionOf(leader);
        Map<String, List<TopicPartition>> byTopic = new LinkedHashMap<>();
        partitions.forEach(where -> byTopic.computeIfAbsent(where.topic(), topic -> new ArrayList<>()).add(where));
        Request request = new Request(PRODUCE, used, true).compactString(transactionalId);
        request.int16(-1).int32(REQUEST_TIMEOUT_MS).array(byTopic.size());
        byTopic.forEach((topic, ofTopic) -> {
            if (used >= BY_TOPIC_ID) {
                request.uuid(topics.get(topic).topicId());
            } else {
                request.compactString(topic);
            }
            request.array(ofTopic.size());
            for (TopicPartition where : ofTopic) {
                Payload payload = payloads.get(where);
                request.int32(where.partition()).compactBytes(payload.bytes, payload.size).noTags();
            }
            request.noTags();
        });
        return request.noTags();
    }

    private Void read(Reply reply, int used, Map<TopicPartition, Answer> answers) {
        reply.skipTags();
        for (int left = reply.array(); left > 0; left--) {
            String topic = used >= BY_TOPIC_ID ? nameOf(reply.uuid()) : reply.compactString();
            for (int partitions = reply.array(); partitions > 0; partitions--) {
                TopicPartition where = new TopicPartition(topic, reply.int32());
                int code = reply.int16();
                reply.int64(); // Base offset.
                reply.int64(); // Time of the append.
                reply.int64(); // Start of the log.
                for (int errors = reply.array(); errors > 0; errors--) {
                    reply.int32();
                    reply.compactString();
                    reply.skipTags();
                }
                String message = reply.compactString();
                reply.skipTags();
                answers.put(where, new Answer(code, message == null ? ErrorCode.of(code).name() : message));
            }
            reply.skipTags();
        }
        return null;
    }

    private String nameOf(UUID topicId) {
        for (Map.Entry<String, PinnedTopic> topic : topics.entrySet()) {
            if (topic.getValue().topicId().equals(topicId)) {
                return topic.getKey();
            }
        }
        throw new IllegalArgumentException("topic id " + topicId);
    }

    private static Answer lost(Unreachable problem) {
        return new Answer(ErrorCode.NETWORK_EXCEPTION, problem.getMessage());
    }

    /** Asks for the topics whose record batches will be sent again: once each, because a broker that hangs may be asked. */
    private void refresh(Map<TopicPartition, Answer> answers) {
        Set<String> stale = new LinkedHashSet<>();
        answers.forEach((where, answer) -> {
            if (answer.code == ErrorCode.UNKNOWN_TOPIC_ID || ErrorCode.of(answer.code).verdict() == Verdict.AGAIN) {
                stale.add(where.topic());
            }
        });
        for (String topic : stale) {
            try {
                cluster.refresh(topic);
            } catch (BrokerError | Unreachable e) {
                // The next request reports the problem.
            }
        }
    }

    private Answer judged(TopicPartition where, Answer answer) {
        // Either the broker does not know a new topic yet, or the topic was deleted. If its id is still the same,
        // the topic exists, and the task sends the record batch again.
        boolean exists = answer.code == ErrorCode.UNKNOWN_TOPIC_ID
                && topics.get(where.topic()).topicId().equals(cluster.currentId(where.topic()));
        return exists ? new Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, answer.message) : answer;
    }
}
