package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.BrokerError;
import fencepost.spark.kafka.ClientError.DeadlinePassed;
import fencepost.spark.kafka.ClientError.NoToken;
import fencepost.spark.kafka.ClientError.Unreachable;
import fencepost.spark.kafka.ClientSettings.Address;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/**
 * The brokers, topics and leaders of a Kafka cluster, and one connection to each broker that is needed.
 *
 * It belongs to one task at a time. The two threads of a task may both use it.
 */
public final class Cluster implements AutoCloseable {
    private static final int METADATA = 3;
    private static final int METADATA_VERSION = 12; // The first with everything that is needed, and known to every Kafka 3.6.
    private static final long METADATA_DEADLINE_MS = 60_000;
    private static final long NEW_TOPIC_MS = 3_000;
    private static final long PAUSE_MS = 20;
    private static final long LONGEST_PAUSE_MS = 1_000;

    private record Topic(UUID id, Map<Integer, Integer> leaders) {}

    private final ClientSettings settings;
    private final Map<Integer, Address> addresses = new HashMap<>();
    private final Map<Integer, BrokerConnection> connections = new HashMap<>();
    private final Map<String, Topic> topics = new HashMap<>();
    private BrokerConnection any;

    Cluster(ClientSettings settings) {
        this.settings = settings;
    }

    /** The topic as it is now. Waits for a topic that was created a moment ago and is not known to every broker yet. */
    public PinnedTopic pin(String name) {
        long began = System.nanoTime();
        long pauseMs = PAUSE_MS;
        while (true) {
            ClientError problem;
            long patienceMs;
            try {
                // Fresh: a cluster object outlives its task, so it may know a topic that was deleted since.
                refresh(name);
                Topic topic = topic(name);
                return new PinnedTopic(topic.id, topic.leaders.size());
            } catch (BrokerError e) {
                if (e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) {
                    throw e;
                }
                problem = e;
                patienceMs = NEW_TOPIC_MS;
                pauseMs = PAUSE_MS;
            } catch (Unreachable e) {
                checkFirstContact(e, began);
                problem = e;
                patienceMs = METADATA_DEADLINE_MS;
            }
            long tookMs = (System.nanoTime() - began) / 1_000_000;
            if (tookMs + pauseMs > patienceMs) {
                throw problem instanceof BrokerError
                        ? problem
                        : new DeadlinePassed("given up after " + tookMs / 1000 + " s; the last answer was: "
                                + problem.getMessage());
            }
            pause(pauseMs);
            pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
        }
    }

    /** The id that the topic of this name has now; null if there is none. */
    synchronized UUID currentId(String name) {
        Topic topic = topics.get(name);
        return topic == null ? null : topic.id;
    }

    /** Asks for the brokers and for one topic. This never creates a topic. */
    synchronized void refresh(String name) {
        Request request = new Request(METADATA, METADATA_VERSION, true).array(1).uuid(new UUID(0, 0)).compactString(name);
        request.noTags().int8(0).int8(0).noTags();
        BrokerConnection connection = any();
        try {
            connection.ask(request, "Metadata", this::learn);
        } catch (Unreachable e) {
            drop(connection);
            throw e;
        }
    }

    private Void learn(Reply reply) {
        reply.skipTags();
        reply.int32(); // Throttle time.
        addresses.clear();
        for (int left = reply.array(); left > 0; left--) {
            int id = reply.int32();
            addresses.put(id, new Address(reply.compactString(), reply.int32()));
            reply.compactString(); // Rack.
            reply.skipTags();
        }
        reply.compactString(); // Cluster id.
        reply.int32(); // Controller.
        BrokerError refusal = null;
        for (int left = reply.array(); left > 0; left--) {
            int code = reply.int16();
            String name = reply.compactString();
            UUID id = reply.uuid();
            reply.bool(); // Is it internal?
            Map<Integer, Integer> leaders = new HashMap<>();
            for (int partitions = reply.array(); partitions > 0; partitions--) {
                reply.int16();
                int index = reply.int32();
                leaders.put(index, reply.int32());
                reply.int32(); // Leader epoch.
                for (int lists = 0; lists < 3; lists++) { // Replicas, those in sync, those offline.
                    for (int nodes = reply.array(); nodes > 0; nodes--) {
                        reply.int32();
                    }
                }
                reply.skipTags();
            }
            reply.int32(); // Authorized operations.
            reply.skipTags();
            if (code == ErrorCode.NONE) {
                topics.put(name, new Topic(id, leaders));
            } else {
                topics.remove(name);
                if (code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION && code != ErrorCode.LEADER_NOT_AVAILABLE) {
                    refusal = new BrokerError(code, "topic " + name, null);
                }
            }
        }
        if (refusal != null) {
            throw refusal;
        }
        return null;
    }

    /** The connection to the leader of a partition. */
    synchronized BrokerConnection leader(TopicPartition where) {
        if (!topics.containsKey(where.topic())) {
            refresh(where.topic());
        }
        Map<Integer, Integer> leaders = topic(where.topic()).leaders;
        Integer node = leaders.get(where.partition());
        if (node == null) {
            String detail = "the topic has " + leaders.size() + " partitions";
            throw new BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where.toString(), detail);
        }
        if (node < 0) {
            throw new BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, where.toString(), null);
        }
        BrokerConnection connection = connections.get(node);
        if (connection == null) {
            if (!addresses.containsKey(node)) {
                throw new Unreachable("broker " + node + " is not in the cluster's metadata");
            }
            connection = new BrokerConnection(addresses.get(node), settings);
            connections.put(node, connection);
            FirstContact.made(settings);
        }
        return connection;
    }

    /** Raises Unreachable if this JVM has reached no broker since it began to try, and should not try any longer. */
    void checkFirstContact(Unreachable problem, long beganNanos) {
        FirstContact.check(settings, problem, beganNanos);
    }

    /** Forgets a connection that failed. */
    synchronized void drop(BrokerConnection connection) {
        connection.close();
        connections.values().remove(connection);
        any = any == connection ? null : any;
    }

    @Override
    public synchronized void close() {
        connections.values().forEach(BrokerConnection::close);
        if (any != null) {
            any.close();
        }
        connections.clear();
        any = null;
    }

    private Topic topic(String name) {
        Topic topic = topics.get(name);
        if (topic == null) {
            throw new BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic " + name, "it does not exist");
        }
        return topic;
    }

    /** A connection for questions that any broker answers. It is not used for records: they would delay the answer. */
    private BrokerConnection any() {
        if (any != null) {
            return any;
        }
        List<String> problems = new ArrayList<>();
        Set<String> hints = new LinkedHashSet<>();
        Set<Address> known = new LinkedHashSet<>(settings.bootstrap());
        known.addAll(addresses.values());
        for (Address address : known) {
            try {
                any = new BrokerConnection(address, settings);
                return any;
            } catch (NoToken e) {
                throw e; // Every broker wants the same token.
            } catch (Unreachable e) {
                String[] said = e.getMessage().split("\n\n", 2);
                problems.add(said[0]);
                if (said.length > 1) {
                    hints.add(said[1]);
                }
            }
        }
        String what = "no broker can be reached: " + String.join("; ", problems);
        throw new Unreachable(hints.isEmpty() ? what : what + "\n\n" + String.join("\n\n", hints));
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new Unreachable("interrupted");
        }
    }
}
