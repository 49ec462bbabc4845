package fencepost.spark.kafka;

/** An error of the client; the classes have the names and the texts of those in Python's `client/failures.py`. */
public class ClientError extends RuntimeException {
    private static final long serialVersionUID = 1;

    ClientError(String message) {
        super(message);
    }

    /** A setting is wrong; nothing was sent. */
    public static final class BadClientSetting extends ClientError {
        private static final long serialVersionUID = 1;

        BadClientSetting(String message) {
            super(message);
        }
    }

    /** No connection to a broker, or it ended: the broker may have served the request. */
    public static class Unreachable extends ClientError {
        private static final long serialVersionUID = 1;

        Unreachable(String message) {
            super(message);
        }
    }

    /** The token for the login cannot be had now. */
    public static final class NoToken extends Unreachable {
        private static final long serialVersionUID = 1;

        public NoToken(String message) {
            super(message);
        }
    }

    /** A broker refused the credentials, or cannot be trusted. */
    public static final class AuthenticationFailed extends ClientError {
        private static final long serialVersionUID = 1;

        public AuthenticationFailed(String message) {
            super(message);
        }
    }

    /** A definite refusal: the request had no effect. */
    public static final class BrokerError extends ClientError {
        private static final long serialVersionUID = 1;

        public final int code;

        BrokerError(int code, String about, String detail) {
            super(about + ": " + ErrorCode.of(code) + (detail == null ? "" : ": " + detail));
            this.code = code;
        }
    }

    /** Retriable errors until the deadline; the message has the last one. */
    public static final class DeadlinePassed extends ClientError {
        private static final long serialVersionUID = 1;

        DeadlinePassed(String message) {
            super(message);
        }
    }
}
