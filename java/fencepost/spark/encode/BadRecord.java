package fencepost.spark.encode;

/** A row that cannot become a record, because of its values and not because of their types. */
public final class BadRecord extends RuntimeException {
    private static final long serialVersionUID = 1;

    public BadRecord(String message) {
        super(message);
    }
}
