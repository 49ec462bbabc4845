package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.AuthenticationFailed;
import fencepost.spark.kafka.ClientError.Unreachable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.BufferUnderflowException;
import java.security.cert.CertificateException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.function.Function;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;

/** One blocking connection to one broker: connect, TLS, SASL, then requests, one after the other. */
final class BrokerConnection implements AutoCloseable {
    private static final int API_VERSIONS = 18;
    private static final int MAX_REPLY_BYTES = 1 << 30;

    final ClientSettings.Address address;
    private final ClientSettings settings;
    private final Socket socket;
    private final DataInputStream in;
    private final Map<Integer, Integer> maxVersions = new HashMap<>();
    private final Queue<Integer> unanswered = new ArrayDeque<>();
    private int correlationId;
    private int answers;
    private long renewedAtNanos; // 0: the login does not end.

    BrokerConnection(ClientSettings.Address address, ClientSettings settings) {
        this.address = address;
        this.settings = settings;
        this.socket = connect();
        try {
            in = new DataInputStream(socket.getInputStream());
            socket.setSoTimeout(settings.connectTimeoutMs());
            greet();
            socket.setSoTimeout(settings.requestTimeoutMs());
            if (settings.mechanism() != null) {
                logIn();
            }
        } catch (IOException e) {
            close();
            throw ended("ApiVersions", e);
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    /** The highest version that the broker serves, at most this one. */
    int version(int apiKey, int atMost) {
        return Math.min(maxVersions.getOrDefault(apiKey, -1), atMost);
    }

    /** Sends a request and reads its reply. Raises Unreachable, after which the connection is closed. */
    <T> T ask(Request request, String what, Function<Reply, T> read) {
        send(request, what);
        return receive(what, read);
    }

    void send(Request request, String what) {
        // Not while an answer is outstanding: it would come before those of the login.
        if (renewedAtNanos != 0 && unanswered.isEmpty() && System.nanoTime() - renewedAtNanos >= 0) {
            try {
                logIn();
            } catch (RuntimeException e) {
                close();
                throw e;
            }
        }
        try {
            request.writeTo(socket.getOutputStream(), ++correlationId, settings.clientId());
            unanswered.add(correlationId);
        } catch (IOException e) {
            close();
            throw ended(what, e);
        }
    }

    <T> T receive(String what, Function<Reply, T> read) {
        try {
            int size = in.readInt();
            if (size < 4 || size > MAX_REPLY_BYTES) {
                throw new Unreachable(address + " sent a reply of " + size + " bytes to " + what + strangerHint());
            }
            byte[] frame = new byte[size];
            in.readFully(frame);
            answers++;
            Reply reply = new Reply(frame);
            int answered = reply.int32();
            int expected = unanswered.remove();
            if (answered != expected) {
                throw new Unreachable(address + " answered request " + answered + " instead of " + expected);
            }
            return read.apply(reply);
        } catch (SocketTimeoutException e) {
            close();
            throw new Unreachable(address + " did not answer " + what + " within " + settings.requestTimeoutMs() + " ms"
                    + (answers == 0 ? protocolHint() : ""));
        } catch (IOException e) {
            close();
            throw ended(what, e);
        } catch (BufferUnderflowException | IllegalArgumentException e) {
            close();
            throw new Unreachable(address + " answered " + what + " with something else: " + e + strangerHint());
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException ignored) {
            // The socket is not used any more.
        }
    }

    private void logIn() {
        long began = System.nanoTime();
        renewedAtNanos = 0; // The requests of the login itself are sent as they are.
        long afterMs = new Sasl(this, settings).authenticate();
        renewedAtNanos = afterMs == 0 ? 0 : began + afterMs * 1_000_000;
    }

    private Socket connect() {
        Socket plain = new Socket();
        try {
            plain.connect(new InetSocketAddress(address.host(), address.port()), settings.connectTimeoutMs());
            plain.setTcpNoDelay(true);
            plain.setKeepAlive(true);
        } catch (IOException e) {
            String why = e instanceof UnknownHostException ? "unknown host" : e.getMessage();
            closeQuietly(plain);
            throw new Unreachable("cannot connect to " + address + ": " + why);
        }
        if (!settings.usesTls()) {
            return plain;
        }
        try {
            plain.setSoTimeout(settings.connectTimeoutMs());
            return Tls.wrap(plain, address.host(), settings);
        } catch (SSLHandshakeException e) {
            closeQuietly(plain);
            if (hasCause(e, CertificateException.class)) {
                // A retry would give the same result.
                throw new AuthenticationFailed("the certificate of " + address + " is not to be trusted: "
                        + e.getMessage() + "\n\nhint: ssl.ca.location names the authority that signed it; "
                        + "ssl.endpoint.identification.algorithm=none accepts any host name");
            }
            throw new Unreachable("TLS with " + address + " failed: " + e.getMessage() + protocolHint());
        } catch (IOException e) {
            closeQuietly(plain);
            throw new Unreachable("TLS with " + address + " failed: " + e.getMessage() + protocolHint());
        } catch (RuntimeException e) {
            closeQuietly(plain);
            throw e;
        }
    }

    private void greet() {
        Request request = new Request(API_VERSIONS, 3, true).compactString("fencepost").compactString("1").noTags();
        send(request, "ApiVersions");
        receive("ApiVersions", reply -> {
            int code = reply.int16(); // Kafka: this reply has the old header, without tags.
            if (code != ErrorCode.NONE) {
                throw new Unreachable(address + " refused ApiVersions: " + ErrorCode.of(code).name()
                        + "\n\nhint: is this a broker of Apache Kafka 3.6 or later?");
            }
            for (int left = reply.array(); left > 0; left--) {
                int apiKey = reply.int16();
                reply.int16();
                maxVersions.put(apiKey, reply.int16());
                reply.skipTags();
            }
            return null;
        });
    }

    private Unreachable ended(String what, IOException e) {
        String why = e instanceof EOFException ? "closed by the broker" : e.getMessage();
        String how = e instanceof SSLException ? "TLS: " : "";
        return new Unreachable("the connection to " + address + " ended during " + what + ": " + how + why + protocolHint());
    }

    private String protocolHint() {
        return answers > 1 ? "" : "\n\nhint: does this port want another security.protocol than " + settings.protocol() + "?";
    }

    private String strangerHint() {
        return answers > 1 ? "" : "\n\nhint: is this the port of a Kafka broker, and is security.protocol right?";
    }

    private static boolean hasCause(Throwable error, Class<?> type) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (type.isInstance(cause)) {
                return true;
            }
        }
        return false;
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // The socket is not used any more.
        }
    }
}
