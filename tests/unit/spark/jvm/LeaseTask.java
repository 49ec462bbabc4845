import fencepost.spark.encode.Columns;
import fencepost.spark.kafka.TopicPartition;
import fencepost.spark.lease.DriverUnreachable;
import fencepost.spark.lease.Lease;
import fencepost.spark.lease.LeaseAddress;
import fencepost.spark.lease.LeaseClient;
import fencepost.spark.lease.TaskAttempt;
import fencepost.spark.lease.TaskResult;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * LeaseTask HOST PORT TOKEN writes|fails|killed|task-of-ROWS [FINGERPRINT]: does what a task in Spark's JVM does with its
 * driver, and prints it.
 */
public final class LeaseTask {
    private static final String TASK = "task-of-";

    public static void main(String[] arguments) throws ReflectiveOperationException {
        String fingerprint = arguments.length > 4 ? arguments[4] : null;
        LeaseAddress address =
                new LeaseAddress(arguments[0], Integer.parseInt(arguments[1]), arguments[2], fingerprint);
        switch (arguments[3]) {
            case "writes" -> write(address);
            case "fails" -> {
                fail(address, 1, false);
                fail(address, 2, false);
            }
            case "killed" -> {
                long began = System.nanoTime();
                fail(address, 1, true);
                System.out.println("after " + (System.nanoTime() - began) / 1_000_000 + " ms");
            }
            default -> runTask(address, Integer.parseInt(arguments[3].substring(TASK.length())));
        }
    }

    private static void write(LeaseAddress address) {
        LeaseClient client;
        try {
            client = LeaseClient.connect(address, new TaskAttempt(1, 0, 1), 0, () -> {}, () -> false);
        } catch (DriverUnreachable e) {
            System.out.println(e.getMessage());
            return;
        }
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

    /** A whole task, with so many rows. */
    private static void runTask(LeaseAddress address, int rows) throws ReflectiveOperationException {
        // By reflection: the class is not public.
        Class<?> type = Class.forName("fencepost.spark.TaskWriter");
        Constructor<?> constructor = type.getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        Columns columns = new Columns(-1, 0, -1, -1, -1, -1, false, true, false);
        Runnable openInput = () -> {};
        Object writer = constructor.newInstance(TaskContext$.MODULE$.empty(), address, 1, columns, openInput);
        Method write = method(type, "write", InternalRow.class);
        Method finish = method(type, "finish");
        for (int n = 0; n < rows; n++) {
            write.invoke(writer, new GenericInternalRow(new Object[] {UTF8String.fromString("row " + n)}));
        }
        try {
            System.out.println(((TaskResult) finish.invoke(writer)).records() + " records");
        } catch (InvocationTargetException e) {
            System.out.println(e.getCause().getMessage());
        }
        method(type, "close").invoke(writer);
    }

    private static Method method(Class<?> type, String name, Class<?>... parameters) throws NoSuchMethodException {
        Method found = type.getDeclaredMethod(name, parameters);
        found.setAccessible(true);
        return found;
    }
}
