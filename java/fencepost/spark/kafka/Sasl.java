package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.AuthenticationFailed;
import fencepost.spark.kafka.Logins.Token;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** The logins PLAIN, SCRAM (RFC 5802, without channel binding) and OAUTHBEARER (RFC 7628), on one connection. */
final class Sasl {
    private static final int HANDSHAKE = 17;
    private static final int AUTHENTICATE = 36;
    private static final String OAUTHBEARER = "OAUTHBEARER";
    /** A session is renewed when this part of its lifetime has passed, as in Python's `client/sasl.py`. */
    private static final double RENEWED_AT = 0.85;
    /** Brokers refuse to renew a session that is younger than a second. */
    private static final long LEAST_SESSION_MS = 1_100;

    private final BrokerConnection connection;
    private final ClientSettings settings;
    private long lifetimeMs;

    Sasl(BrokerConnection connection, ClientSettings settings) {
        this.connection = connection;
        this.settings = settings;
    }

    /** Returns after how many milliseconds to log in again, before the session ends (KIP-368); 0: never. */
    long authenticate() {
        String mechanism = settings.mechanism();
        // Before the first request: without a token, the connection stays as it was.
        Token token = mechanism.equals(OAUTHBEARER) ? Logins.token(settings.loginId()) : null;
        handshake(mechanism);
        lifetimeMs = 0;
        if (token != null) {
            try {
                oauthbearer(token);
            } catch (AuthenticationFailed e) {
                Logins.forget(settings.loginId(), token);
                throw e;
            }
        } else if (mechanism.equals("PLAIN")) {
            say("\0" + settings.username() + "\0" + settings.password());
        } else {
            try {
                scram(mechanism.substring("SCRAM-".length()));
            } catch (GeneralSecurityException e) {
                throw new AuthenticationFailed("this Java cannot speak " + mechanism + ": " + e.getMessage());
            }
        }
        return lifetimeMs <= 0 ? 0 : Math.max((long) (lifetimeMs * RENEWED_AT), LEAST_SESSION_MS);
    }

    private void handshake(String mechanism) {
        Request request = new Request(HANDSHAKE, 1, false).string(mechanism);
        connection.ask(request, "SaslHandshake", reply -> {
            int code = reply.int16();
            List<String> offered = new ArrayList<>();
            for (int left = reply.int32(); left > 0; left--) {
                offered.add(reply.string());
            }
            if (code != ErrorCode.NONE) {
                throw new AuthenticationFailed(connection.address + " does not accept sasl.mechanism=" + mechanism + ", "
                        + (offered.isEmpty() ? "and offers no other" : "only " + String.join(", ", offered))
                        + "\n\nhint: check sasl.mechanism and security.protocol");
            }
            return null;
        });
    }

    /** Sends a message and returns the broker's answer. */
    private String say(String message) {
        Request request = new Request(AUTHENTICATE, 1, false).bytes(message.getBytes(StandardCharsets.UTF_8));
        return connection.ask(request, "SaslAuthenticate", reply -> {
            int code = reply.int16();
            String problem = reply.string();
            if (code != ErrorCode.NONE) {
                throw new AuthenticationFailed(refusal(problem));
            }
            String answer = new String(reply.bytes(), StandardCharsets.UTF_8);
            lifetimeMs = reply.int64();
            return answer;
        });
    }

    private String refusal(String problem) {
        if (settings.mechanism().equals(OAUTHBEARER)) {
            return connection.address + " refused the token: " + problem
                    + "\n\nhint: is the token for this cluster (issuer, audience, scope), and are the clocks right?";
        }
        return connection.address + " refused user '" + settings.username() + "': " + problem
                + "\n\nhint: check sasl.username and sasl.password";
    }

    private void oauthbearer(Token token) {
        StringBuilder message = new StringBuilder("n,,\u0001auth=Bearer ").append(token.value()).append('\u0001');
        token.extensions().forEach((name, value) -> message.append(name).append('=').append(value).append('\u0001'));
        if (!say(message.append('\u0001').toString()).isEmpty()) {
            // The broker has refused the token, and says so with an error code when it is asked to go on.
            say("\u0001");
            throw new AuthenticationFailed(connection.address + " refused the token, and then accepted it");
        }
    }

    private void scram(String digest) throws GeneralSecurityException {
        String hmac = "Hmac" + digest.replace("-", "");
        byte[] random = new byte[24];
        new SecureRandom().nextBytes(random);
        String nonce = Base64.getEncoder().encodeToString(random);
        String first = "n=" + settings.username().replace("=", "=3D").replace(",", "=2C") + ",r=" + nonce;
        String serverFirst = say("n,," + first);
        Map<String, String> fields = fields(serverFirst);
        if (!fields.getOrDefault("r", "").startsWith(nonce)) {
            throw new AuthenticationFailed(connection.address + " answered SCRAM with a nonce that is not ours");
        }
        byte[] salt = Base64.getDecoder().decode(fields.get("s"));
        byte[] salted = salted(hmac, salt, Integer.parseInt(fields.get("i")));
        byte[] clientKey = mac(hmac, salted, "Client Key");
        String last = "c=biws,r=" + fields.get("r");
        String signed = first + "," + serverFirst + "," + last;
        byte[] proof = mac(hmac, MessageDigest.getInstance(digest).digest(clientKey), signed);
        for (int n = 0; n < proof.length; n++) {
            proof[n] ^= clientKey[n];
        }
        String serverLast = say(last + ",p=" + Base64.getEncoder().encodeToString(proof));
        byte[] expected = mac(hmac, mac(hmac, salted, "Server Key"), signed);
        if (!serverLast.equals("v=" + Base64.getEncoder().encodeToString(expected))) {
            throw new AuthenticationFailed(connection.address + " could not prove that it knows the password");
        }
    }

    /** PBKDF2 by hand: Java's own takes characters and not bytes, and encodes some passwords otherwise. */
    private byte[] salted(String hmac, byte[] salt, int iterations) throws GeneralSecurityException {
        Mac mac = Mac.getInstance(hmac);
        // A key must not be empty, and HMAC pads it with zeros anyway.
        byte[] password = settings.password().getBytes(StandardCharsets.UTF_8);
        mac.init(new SecretKeySpec(password.length == 0 ? new byte[1] : password, hmac));
        mac.update(salt);
        byte[] last = mac.doFinal(new byte[] {0, 0, 0, 1});
        byte[] result = last.clone();
        for (int n = 1; n < iterations; n++) {
            last = mac.doFinal(last);
            for (int i = 0; i < result.length; i++) {
                result[i] ^= last[i];
            }
        }
        return result;
    }

    private static byte[] mac(String hmac, byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance(hmac);
        mac.init(new SecretKeySpec(key, hmac));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, String> fields(String message) {
        Map<String, String> found = new HashMap<>();
        for (String part : message.split(",")) {
            int equals = part.indexOf('=');
            if (equals > 0) {
                found.put(part.substring(0, equals), part.substring(equals + 1));
            }
        }
        return found;
    }
}
