import fencepost.spark.kafka.TopicPartition;
import fencepost.spark.lease.Lease;
import fencepost.spark.lease.LeaseAddress;
import fencepost.spark.lease.LeaseClient;
import fencepost.spark.lease.TaskAttempt;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** LeaseTask HOST PORT TOKEN writes|fails|killed: does what a task in Spark's JVM does with its driver, and prints it. */
public final class LeaseTask {
    public static void main(String[] arguments) {
        LeaseAddress address =
                new LeaseAddress(arguments[0], Integer.parseInt(arguments[1]), arguments[2], null);
        switch (arguments[3]) {
            case "writes" -> write(address);
            case "fails" -> {
                fail(address, 1, false);
                fail(address, 2, false);
            }
            case "killed" -> fail(address, 1, true);
            default -> throw new IllegalArgumentException(arguments[3]);
        }
    }

    private static void write(LeaseAddress address) {
        LeaseClient client = LeaseClient.connect(address, new TaskAttempt(1, 0, 1), 0, () -> {}, () -> false);
        Map<TopicPartition, Long> wants = new LinkedHashMap<>();
        wants.put(new TopicPartition("audit.log_1", 0), 5L);
        wants.put(new TopicPartition("refunds", 3), 9L);
        wants.put(new TopicPartition("audit.log_1", 12), 7L);
        List<Lease> leases = client.acquire(wants);
        print(leases);
        leases = client.exchange(leases, 1000, Map.of(new TopicPartition("refunds", 3), 2L));
        print(leases);
        client.release(leases, 100);
        wants.merge(new TopicPartition("refunds", 3), 2L, Long::sum);
        System.out.println(client.done(wants, Map.of()).records());
        client.close();
    }

    private static void print(List<Lease> leases) {
        StringBuilder line = new StringBuilder();
        for (Lease lease : leases) {
            line.append(lease.where()).append(' ').append(lease.baseSequence()).append('+').append(lease.recordCount());
            line.append(" within ").append(lease.withinMs()).append("; ");
        }
        System.out.println(line);
    }

    private static void fail(LeaseAddress address, long taskAttemptId, boolean isKilled) {
        Runnable openInput = () -> {
            throw new IllegalStateException("no input for task " + taskAttemptId);
        };
        try {
            LeaseClient.connect(address, new TaskAttempt(1, 0, taskAttemptId), 0, openInput, () -> isKilled);
        } catch (IllegalStateException e) {
            System.out.println(e.getMessage());
        }
    }
}
