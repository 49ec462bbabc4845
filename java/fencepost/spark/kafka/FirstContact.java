package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.NoToken;
import fencepost.spark.kafka.ClientError.Unreachable;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Gives up soon in a JVM that has never reached a broker at the address that the cluster gives for it. Follows Python's
 * `task/first_contact.py`, which says why.
 */
final class FirstContact {
    private static final long LONGEST_MS = 15_000;
    private static final Set<ClientSettings> made = ConcurrentHashMap.newKeySet();

    private FirstContact() {}

    static void made(ClientSettings settings) {
        made.add(settings);
    }

    /** problem: of the last attempt. beganNanos: when the first one began. Raises Unreachable. */
    static void check(ClientSettings settings, Unreachable problem, long beganNanos) {
        long tookMs = (System.nanoTime() - beganNanos) / 1_000_000;
        if (tookMs < LONGEST_MS || problem instanceof NoToken || made.contains(settings)) {
            return;
        }
        throw new Unreachable("a task on " + hostName() + " has reached no broker in " + tookMs / 1000 + " s: "
                + problem.getMessage() + "\n\nhint: let executors connect to the brokers; `fencepost spark check` tries it. A "
                + "firewall or network policy is in the way, or executors do not know the names in bootstrap.servers or "
                + "advertised.listeners");
    }

    private static String hostName() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            return "an executor";
        }
    }
}
