import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;

import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * Logins with the token in a file, which `client.py` keeps new: the token, when it expires (milliseconds since 1970), and a
 * line NAME=VALUE for each extension.
 */
public class TokenFile implements AuthenticateCallbackHandler {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        file = Path.of((String) entries.get(0).getOptions().get("tokenFile"));
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        List<String> lines = Files.readAllLines(file);
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) callback).token(new Token(lines.get(0), Long.parseLong(lines.get(1))));
            } else if (callback instanceof SaslExtensionsCallback) {
                ((SaslExtensionsCallback) callback).extensions(extensions(lines.subList(2, lines.size())));
            } else {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private static SaslExtensions extensions(List<String> lines) {
        Map<String, String> found = new HashMap<>();
        for (String line : lines) {
            int equals = line.indexOf('=');
            found.put(line.substring(0, equals), line.substring(equals + 1));
        }
        return new SaslExtensions(found);
    }

    @Override
    public void close() {
    }

    private static class Token implements OAuthBearerToken {
        private final String value;
        private final long expiresMs;
        private final long startMs = System.currentTimeMillis();

        Token(String value, long expiresMs) {
            this.value = value;
            this.expiresMs = expiresMs;
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Collections.emptySet();
        }

        @Override
        public long lifetimeMs() {
            return expiresMs;
        }

        @Override
        public String principalName() {
            return "";
        }

        @Override
        public Long startTimeMs() {
            return startMs;
        }
    }
}
