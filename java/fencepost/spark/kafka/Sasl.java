package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.AuthenticationFailed;
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

/** The logins PLAIN and SCRAM (RFC 5802, without channel binding), on a new connection. */
final class Sasl {
    private static final int HANDSHAKE = 17;
    private static final int AUTHENTICATE = 36;

    private final BrokerConnection connection;
    private final ClientSettings settings;

    Sasl(BrokerConnection connection, ClientSettings settings) {
        this.connection = connection;
        this.settings = settings;
    }

    void authenticate() {
        String mechanism = settings.mechanism();
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
        if (mechanism.equals("PLAIN")) {
            token("\0" + settings.username() + "\0" + settings.password());
            return;
        }
        try {
            scram(mechanism.substring("SCRAM-".length()));
        } catch (GeneralSecurityException e) {
            throw new AuthenticationFailed("this Java cannot speak " + mechanism + ": " + e.getMessage());
        }
    }

    private String token(String token) {
        Request request = new Request(AUTHENTICATE, 1, false).bytes(token.getBytes(StandardCharsets.UTF_8));
        return connection.ask(request, "SaslAuthenticate", reply -> {
            int code = reply.int16();
            String message = reply.string();
            if (code != ErrorCode.NONE) {
                throw new AuthenticationFailed(connection.address + " refused user '" + settings.username() + "': " + message
                        + "\n\nhint: check sasl.username and sasl.password");
            }
            return new String(reply.bytes(), StandardCharsets.UTF_8);
        });
    }

    private void scram(String digest) throws GeneralSecurityException {
        String hmac = "Hmac" + digest.replace("-", "");
        byte[] random = new byte[24];
        new SecureRandom().nextBytes(random);
        String nonce = Base64.getEncoder().encodeToString(random);
        String first = "n=" + settings.username().replace("=", "=3D").replace(",", "=2C") + ",r=" + nonce;
        String serverFirst = token("n,," + first);
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
        String serverLast = token(last + ",p=" + Base64.getEncoder().encodeToString(proof));
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
