package fencepost.spark.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;

/**
 * The settings of a client, as Python's `client/settings.py` has read and checked them. Null: not set.
 *
 * Equal settings share connections. loginId: of the tokens of OAUTHBEARER, see Logins.
 */
public record ClientSettings(
        List<Address> bootstrap,
        String clientId,
        String protocol,
        String mechanism,
        String username,
        String password,
        String loginId,
        String caLocation,
        String caPem,
        String truststoreLocation,
        String truststorePassword,
        String certificateLocation,
        String certificatePem,
        String keyLocation,
        String keyPem,
        String keyPassword,
        String keystoreLocation,
        String keystorePassword,
        boolean checksHostName,
        int requestTimeoutMs,
        int connectTimeoutMs) {

    public record Address(String host, int port) {
        @Override
        public String toString() {
            return host + ":" + port;
        }
    }

    public static ClientSettings of(JsonNode json) {
        List<Address> bootstrap = new ArrayList<>();
        json.get("bootstrap").forEach(a -> bootstrap.add(new Address(a.get(0).asText(), a.get(1).asInt())));
        return new ClientSettings(
                List.copyOf(bootstrap),
                text(json, "client_id"),
                text(json, "protocol"),
                text(json, "sasl_mechanism"),
                text(json, "username"),
                text(json, "password"),
                text(json, "login_id"),
                text(json, "ca_location"),
                text(json, "ca_pem"),
                text(json, "truststore_location"),
                text(json, "truststore_password"),
                text(json, "certificate_location"),
                text(json, "certificate_pem"),
                text(json, "key_location"),
                text(json, "key_pem"),
                text(json, "key_password"),
                text(json, "keystore_location"),
                text(json, "keystore_password"),
                json.get("checks_host_name").asBoolean(),
                (int) (json.get("request_timeout_s").asDouble() * 1000),
                (int) (json.get("connect_timeout_s").asDouble() * 1000));
    }

    boolean usesTls() {
        return protocol.endsWith("SSL");
    }

    private static String text(JsonNode json, String name) {
        return json.hasNonNull(name) ? json.get(name).asText() : null;
    }

    @Override
    public String toString() {
        return "ClientSettings" + bootstrap; // Without the secrets.
    }
}
