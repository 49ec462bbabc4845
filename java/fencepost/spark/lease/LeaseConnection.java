package fencepost.spark.lease;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketOption;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.Map;
import jdk.net.ExtendedSocketOptions;

/**
 * A connection to the driver's lease service: frames of four bytes of length and a JSON object, as in Python's
 * `lease/wire.py`.
 */
final class LeaseConnection implements AutoCloseable {
    static final int PROTOCOL_VERSION = 5;
    static final ObjectMapper JSON = new ObjectMapper();

    private static final int CONNECT_TIMEOUT_MS = 10_000;
    private static final int MAX_FRAME_BYTES = 4 << 20;
    // A driver whose machine is gone is noticed after about half a minute.
    private static final Map<SocketOption<Integer>, Integer> KEEPALIVE = Map.of(
            ExtendedSocketOptions.TCP_KEEPIDLE, 15,
            ExtendedSocketOptions.TCP_KEEPINTERVAL, 5,
            ExtendedSocketOptions.TCP_KEEPCOUNT, 4);

    private final LeaseAddress address;
    private final String who;
    private Socket socket = new Socket();
    private DataInputStream in;

    /** who: the name of this side, for messages. */
    LeaseConnection(LeaseAddress address, String who) {
        this.address = address;
        this.who = who;
        try {
            socket.connect(new InetSocketAddress(address.host(), address.port()), CONNECT_TIMEOUT_MS);
            socket.setTcpNoDelay(true);
            socket.setKeepAlive(true);
            for (Map.Entry<SocketOption<Integer>, Integer> option : KEEPALIVE.entrySet()) {
                if (socket.supportedOptions().contains(option.getKey())) {
                    socket.setOption(option.getKey(), option.getValue());
                }
            }
            socket.setSoTimeout(CONNECT_TIMEOUT_MS);
        } catch (IOException e) {
            closeQuietly(socket);
            throw unreachable(e);
        }
    }

    /** Introduces this side. The greeting has a deadline; later answers have none: a lease may be held by another task. */
    JsonNode greet(ObjectNode hello) {
        return introduce("hello", hello, CONNECT_TIMEOUT_MS);
    }

    /** The first question, after the handshake of TLS. A driver without a place closes the connection meanwhile. */
    JsonNode introduce(String op, ObjectNode hello, int timeoutMs) {
        try {
            socket = address.fingerprint() == null ? socket : PinnedTls.wrap(socket, address);
            in = new DataInputStream(socket.getInputStream());
            socket.setSoTimeout(timeoutMs);
            hello.put("op", op).put("version", PROTOCOL_VERSION).put("token", address.token());
            JsonNode answer = ask(hello);
            socket.setSoTimeout(0);
            return answer;
        } catch (IOException e) {
            close();
            throw unreachable(e);
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    JsonNode ask(ObjectNode message) {
        tell(message);
        return read(receive());
    }

    /** An answer as JSON. Raises RefusedByDriver. */
    JsonNode read(byte[] body) {
        try {
            JsonNode answer = JSON.readTree(body);
            if (answer.has("broken")) {
                throw new RefusedByDriver(answer.get("broken").asText(), answer.path("fatal").asBoolean());
            }
            return answer;
        } catch (IOException e) {
            throw unreachable(e);
        }
    }

    void tell(ObjectNode message) {
        tell(bytes(message));
    }

    /** Messages that the driver gets together. */
    void tell(byte[]... bodies) {
        int size = 0;
        for (byte[] body : bodies) {
            size += 4 + body.length;
        }
        ByteBuffer frames = ByteBuffer.allocate(size);
        for (byte[] body : bodies) {
            frames.putInt(body.length).put(body);
        }
        try {
            synchronized (this) {
                socket.getOutputStream().write(frames.array());
            }
        } catch (IOException e) {
            throw unreachable(e);
        }
    }

    private byte[] bytes(ObjectNode message) {
        try {
            return JSON.writeValueAsBytes(message);
        } catch (IOException e) {
            throw unreachable(e);
        }
    }

    @Override
    public void close() {
        closeQuietly(socket);
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // The socket is not used any more.
        }
    }

    byte[] receive() {
        try {
            int size = in.readInt();
            if (size < 0 || size > MAX_FRAME_BYTES) {
                throw new IOException("a frame of " + size + " bytes; " + MAX_FRAME_BYTES + " are allowed");
            }
            byte[] body = new byte[size];
            in.readFully(body);
            return body;
        } catch (IOException e) {
            throw unreachable(e);
        }
    }

    private DriverUnreachable unreachable(IOException e) {
        String why = e instanceof EOFException ? "the driver closed the connection" : e.getMessage();
        return new DriverUnreachable(
                who + " on " + hostName() + " cannot reach the driver's lease service at " + address + ": "
                        + (e instanceof UnknownHostException ? "unknown host " + why : why)
                        + "\n\nhint: executors open a connection to the driver there. Let it through, or set "
                        + "fencepost.lease.port to a port (or a range FROM-TO) that is open, fencepost.lease.host to a name of "
                        + "the driver that executors can resolve, fencepost.lease.bind to the address of the driver to listen on",
                e);
    }

    private static String hostName() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            return "this host";
        }
    }
}
