package fencepost.spark.lease;

/** One attempt of Spark at one input partition of one write. */
public record TaskAttempt(int writeNumber, int partitionId, long taskAttemptId) {
    @Override
    public String toString() {
        return "task " + taskAttemptId + " (write " + writeNumber + ", input partition " + partitionId + ")";
    }
}
