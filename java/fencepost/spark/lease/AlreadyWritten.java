package fencepost.spark.lease;

/** Not an error: another attempt at this task wrote the rows; its result counts. */
public final class AlreadyWritten extends RuntimeException {
    private static final long serialVersionUID = 1;

    public final TaskResult result;

    AlreadyWritten(TaskResult result) {
        super("already written: " + result.json(), null, false, false);
        this.result = result;
    }
}
