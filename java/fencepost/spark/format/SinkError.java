package fencepost.spark.format;

/** The write failed. The message is Python's: why, and what the user can do. */
public final class SinkError extends RuntimeException {
    private static final long serialVersionUID = 1;

    SinkError(String message) {
        super(message);
    }
}
