package fencepost.spark.format;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/** Python's sink of one streaming query. Answers are JSON: see {@link Answer}. */
public interface PythonSink {
    /** Its name, which Spark shows as the description of the sink. No other running query has it. */
    String name();

    /** Can a query with these options start? */
    String check(SparkSession session);

    /** Write a micro-batch. Returns after the commit. */
    String addBatch(Dataset<Row> frame, long batchId);

    /** The query has ended. */
    void close();
}
