package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.AuthenticationFailed;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * The tokens of OAUTHBEARER, by login. The driver makes them; this JVM keeps each until most of its time has passed.
 *
 * A login has the id of the driver's token source. The tasks of a transaction offer a way to ask for its tokens.
 */
public final class Logins {
    private static final double RENEWED_AT = 0.8;
    private static final long PAUSE_MS = 5_000;
    private static final Map<String, Login> logins = new ConcurrentHashMap<>();

    /** lifetimeMs: from when the driver gave it out. Keep it out of logs. */
    public record Token(String value, long lifetimeMs, Map<String, String> extensions) {
        @Override
        public String toString() {
            return "Token[lifetimeMs=" + lifetimeMs + "]";
        }
    }

    private Logins() {}

    /** ask: throws ClientError. It replaces the one of an earlier transaction, which has ended. */
    public static void offer(String id, Supplier<Token> ask) {
        logins.computeIfAbsent(id, of -> new Login()).ask = ask;
    }

    static Token token(String id) {
        Login login = logins.get(id);
        if (login == null) {
            throw new AuthenticationFailed("the driver has offered no token");
        }
        return login.token();
    }

    /** A broker has refused the token, so the next login needs another. */
    static void forget(String id, Token token) {
        logins.get(id).forget(token);
    }

    private static final class Login {
        private volatile Supplier<Token> ask;
        private Token token;
        private long renewedAtMs;
        private long expiresAtMs;

        synchronized void forget(Token refused) {
            token = refused.equals(token) ? null : token;
        }

        synchronized Token token() {
            long nowMs = System.nanoTime() / 1_000_000;
            if (token != null && nowMs < renewedAtMs) {
                return token;
            }
            try {
                token = ask.get();
            } catch (ClientError e) {
                if (token == null || nowMs >= expiresAtMs) {
                    throw e;
                }
                renewedAtMs = Math.min(nowMs + PAUSE_MS, expiresAtMs); // Until then the old one is valid.
                return token;
            }
            expiresAtMs = nowMs + token.lifetimeMs;
            renewedAtMs = nowMs + (long) (token.lifetimeMs * RENEWED_AT);
            return token;
        }
    }
}
