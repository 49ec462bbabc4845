package fencepost.spark.format;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/** Python's process of the driver, which `fencepost.spark.configure` connects with the session. It decides everything. */
public interface PythonSide {
    /** A sink for a streaming query. options: the options of the query, as JSON. */
    PythonSink open(String options);

    /** Write a DataFrame that is no stream. Returns the answer as JSON: see {@link Answer}. */
    String write(String options, String mode, Dataset<Row> frame);
}
