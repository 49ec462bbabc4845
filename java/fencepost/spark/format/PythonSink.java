package fencepost.spark.format;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/** Python's sink of one streaming query. Answers are JSON: see {@link Answer}. */
public interface PythonSink {
    /** Are the options good? Asked before the query starts. */
    String check();

    /** Write a micro-batch. Returns after the commit. */
    String addBatch(Dataset<Row> frame, long batchId);

    /** The query has ended. */
    void close();
}
