package fencepost.spark.lease;

/** The transaction is over, and why. */
public final class RefusedByDriver extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Running the micro-batch again would end the same way. */
    final boolean isFatal;

    RefusedByDriver(String reason, boolean isFatal) {
        super(reason);
        this.isFatal = isFatal;
    }
}
