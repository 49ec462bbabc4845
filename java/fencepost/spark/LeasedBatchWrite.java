package fencepost.spark;

import fencepost.spark.encode.Columns;
import fencepost.spark.lease.LeaseAddress;
import fencepost.spark.lease.WriteReport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * One write of a transaction. Its commit is only a report: Python's side of the sink checks the results that Spark accepted,
 * and commits or aborts the transaction.
 */
final class LeasedBatchWrite implements BatchWrite {
    private final LeaseAddress forTasks;
    private final LeaseAddress forDriver;
    private final int writeNumber;
    private final Columns columns;

    LeasedBatchWrite(LeaseAddress forTasks, LeaseAddress forDriver, int writeNumber, Columns columns) {
        this.forTasks = forTasks;
        this.forDriver = forDriver;
        this.writeNumber = writeNumber;
        this.columns = columns;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        return new Factory(forTasks, writeNumber, columns);
    }

    /** Leases decide which attempt at a task writes, so Spark need not. */
    @Override
    public boolean useCommitCoordinator() {
        return false;
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
        try (WriteReport report = new WriteReport(forDriver, writeNumber)) {
            for (WriterCommitMessage message : messages) {
                report.add(((TaskWriter.Written) message).result());
            }
            report.finish(messages.length);
        }
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
        // The sink sees the failure of the job, and aborts the transaction.
    }

    private record Factory(LeaseAddress address, int writeNumber, Columns columns) implements DataWriterFactory {
        @Override
        public DataWriter<InternalRow> createWriter(int partitionId, long taskId) {
            return new TaskWriter(address, writeNumber, partitionId, taskId, columns);
        }
    }
}
