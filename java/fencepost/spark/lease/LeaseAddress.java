package fencepost.spark.lease;

import java.io.Serializable;

/** Where the tasks of a transaction find the driver, and their token. Travels with the job; keep it out of logs. */
public record LeaseAddress(String host, int port, String token) implements Serializable {
    @Override
    public String toString() {
        return host.indexOf(':') < 0 ? host + ":" + port : "[" + host + "]:" + port;
    }
}
