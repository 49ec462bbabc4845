package fencepost.spark.send;

/** The task cannot go on. It has reported the error to the driver, which decides about another attempt. */
public final class WriteFailed extends RuntimeException {
    private static final long serialVersionUID = 1;

    public WriteFailed(String reason, Throwable cause) {
        super(reason, cause);
    }
}
