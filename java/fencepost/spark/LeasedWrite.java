package fencepost.spark;

import fencepost.spark.encode.Columns;
import fencepost.spark.lease.LeaseAddress;
import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.storage.StorageLevel;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;

/** One write of a transaction: a Spark job whose tasks write under leases. Python's side of the sink runs it. */
public final class LeasedWrite {
    private static final String NAME = "fencepost";

    /**
     * Writes the rows. Returns the results that Spark accepted, one for each input partition, as a JSON array.
     *
     * fingerprint: null if connections to the driver are not encrypted.
     */
    public String run(Dataset<Row> frame, int writeNumber, String host, int port, String token, String fingerprint) {
        LeaseAddress address = new LeaseAddress(host, port, token, fingerprint);
        Task task = new Task(address, writeNumber, Columns.of(frame.schema()));
        boolean isCached = !frame.storageLevel().equals(StorageLevel.NONE());
        if (frame.queryExecution().logical() instanceof LogicalRDD rows && !isCached) {
            // The rows of a micro-batch, or of compute_once: there is nothing left to plan.
            return run(rows.rdd(), task);
        }
        // A new plan for each write, as in Spark's own writes. The frame's plan may hold shuffles of an attempt that failed.
        // Not by `select`, which also makes an encoder that nothing uses.
        QueryExecution plan = frame.sparkSession().sessionState().executePlan(
                frame.queryExecution().commandExecuted(), CommandExecutionMode.ALL());
        return SQLExecution.withNewExecutionId(plan, Option.apply(NAME), () -> run(plan.toRdd(), task));
    }

    /** As a plain job: with an RDD for the results, Spark would examine its closures again and again, for every write. */
    private static String run(RDD<InternalRow> rows, Task task) {
        ClassTag<String> type = ClassTag$.MODULE$.apply(String.class);
        return "[" + String.join(",", (String[]) rows.sparkContext().runJob(rows, task, type)) + "]";
    }

    /** Travels to the executors, so it has no secrets but the token of the transaction. */
    private static final class Task extends AbstractFunction2<TaskContext, Iterator<InternalRow>, String>
            implements Serializable {
        private static final long serialVersionUID = 1;

        private final LeaseAddress address;
        private final int writeNumber;
        private final Columns columns;

        Task(LeaseAddress address, int writeNumber, Columns columns) {
            this.address = address;
            this.writeNumber = writeNumber;
            this.columns = columns;
        }

        @Override
        public String apply(TaskContext context, Iterator<InternalRow> rows) {
            try (TaskWriter writer = new TaskWriter(context, address, writeNumber, columns, rows::hasNext)) {
                while (rows.hasNext()) {
                    writer.write(rows.next());
                }
                return writer.finish().json();
            }
        }
    }
}
