package fencepost.spark.kafka;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/**
 * The clusters of this JVM, with their open connections: a task takes one and gives it back to the next.
 *
 * A broker answers the requests of a connection one after another, so tasks do not share connections.
 */
public final class Clusters {
    private static final int MOST_FREE = 64;
    private static final Map<ClientSettings, ArrayDeque<Cluster>> free = new HashMap<>();

    private Clusters() {}

    public static Cluster take(ClientSettings settings) {
        synchronized (free) {
            ArrayDeque<Cluster> waiting = free.get(settings);
            return waiting == null || waiting.isEmpty() ? new Cluster(settings) : waiting.pop();
        }
    }

    /** Call it only if no answer is outstanding on any connection of the cluster. */
    public static void giveBack(ClientSettings settings, Cluster cluster) {
        synchronized (free) {
            ArrayDeque<Cluster> waiting = free.computeIfAbsent(settings, of -> new ArrayDeque<>());
            if (waiting.size() < MOST_FREE) {
                waiting.push(cluster);
                return;
            }
        }
        cluster.close();
    }
}
