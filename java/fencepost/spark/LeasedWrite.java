package fencepost.spark;

import fencepost.spark.encode.Columns;
import fencepost.spark.lease.LeaseAddress;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.storage.StorageLevel;
import scala.Option;

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
        QueryExecution plan = ((Dataset<Row>) frame.select("*")).queryExecution();
        return SQLExecution.withNewExecutionId(plan, Option.apply(NAME), () -> run(plan.toRdd(), task));
    }

    private static String run(RDD<InternalRow> rows, Task task) {
        List<String> results = rows.toJavaRDD().mapPartitions(task).collect();
        return "[" + String.join(",", results) + "]";
    }

    /** Travels to the executors, so it has no secrets but the token of the transaction. */
    private record Task(LeaseAddress address, int writeNumber, Columns columns)
            implements FlatMapFunction<Iterator<InternalRow>, String> {
        @Override
        public Iterator<String> call(Iterator<InternalRow> rows) {
            try (TaskWriter writer = new TaskWriter(address, writeNumber, columns)) {
                while (rows.hasNext()) {
                    writer.write(rows.next());
                }
                return List.of(writer.finish().json()).iterator();
            }
        }
    }
}
