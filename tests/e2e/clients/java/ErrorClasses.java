import java.util.List;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints, for every error code, the exception that the client throws, the family it belongs to, and if it is retriable. */
public class ErrorClasses {
    static final List<String> FAMILIES = List.of("RefreshRetriableException", "RetriableException",
        "ApplicationRecoverableException", "InvalidConfigurationException", "ApiException");

    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            Throwable thrown = error.exception();
            if (thrown == null) continue;
            Class<?> family = thrown.getClass();
            while (!FAMILIES.contains(family.getSimpleName())) family = family.getSuperclass();
            System.out.println(error.code() + " " + error.name() + " " + thrown.getClass().getSimpleName() + " "
                + family.getSimpleName() + " " + (thrown instanceof RetriableException));
        }
    }
}
