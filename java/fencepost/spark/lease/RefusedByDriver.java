package fencepost.spark.lease;

/** The transaction is over, and why. */
public final class RefusedByDriver extends RuntimeException {
    private static final long serialVersionUID = 1;

    RefusedByDriver(String reason) {
        super(reason);
    }
}
