package fencepost.spark.lease;

import java.io.Serializable;

/**
 * Where the tasks of a transaction find the driver, and their token. Travels with the job; keep it out of logs.
 *
 * fingerprint: of the driver's certificate; null if the connection is not encrypted.
 */
public record LeaseAddress(String host, int port, String token, String fingerprint) implements Serializable {
    @Override
    public String toString() {
        return host.indexOf(':') < 0 ? host + ":" + port : "[" + host + "]:" + port;
    }
}
