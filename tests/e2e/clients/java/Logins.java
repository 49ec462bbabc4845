import java.io.FileInputStream;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes one record with the settings in each file, and prints what came of it: the topic, or the error. */
public class Logins {
    public static void main(String[] args) throws Exception {
        // The first argument: the address of tokens that the client may use.
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", args[0]);
        for (int i = 1; i < args.length; i++) {
            Properties settings = new Properties();
            try (FileInputStream file = new FileInputStream(args[i])) {
                settings.load(file);
            }
            System.out.println(settings.getProperty("client.id") + "=" + write(settings));
        }
        System.exit(0);
    }

    static String write(Properties settings) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            return producer.send(new ProducerRecord<>("orders", "placed")).get(60, TimeUnit.SECONDS).topic();
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName() + ": " + failed.getCause().getMessage();
        }
    }
}
