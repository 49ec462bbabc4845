import java.util.TreeSet;

import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;

/** The settings that Kafka's own tools know, `admin.NAME=`, and the consumer's default for its isolation level. */
public class ClientSettings {
    public static void main(String[] args) {
        for (String name : new TreeSet<>(AdminClientConfig.configNames())) {
            System.out.println("admin." + name + "=");
        }
        String isolationLevel = ConsumerConfig.ISOLATION_LEVEL_CONFIG;
        System.out.println("consumer." + isolationLevel + "=" + ConsumerConfig.configDef().defaultValues().get(isolationLevel));
    }
}
