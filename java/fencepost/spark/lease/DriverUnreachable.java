package fencepost.spark.lease;

/** No connection to the driver, or it ended: where, and which setting to change. */
public final class DriverUnreachable extends RuntimeException {
    private static final long serialVersionUID = 1;

    DriverUnreachable(String message, Throwable cause) {
        super(message, cause);
    }
}
