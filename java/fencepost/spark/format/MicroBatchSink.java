package fencepost.spark.format;

import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import py4j.Py4JException;

/** Hands each micro-batch of a query to Python, as foreachBatch does. */
final class MicroBatchSink implements Sink, ReportsSinkMetrics {
    /** Spark names the jobs of a query after its run. */
    private static final String RUN_ID = "spark.jobGroup.id";

    private final String description;
    private final PythonSink python;
    private final org.apache.spark.sql.SparkSession session;
    private boolean isWatched;
    private volatile Map<String, String> metrics = Map.of();

    MicroBatchSink(String description, PythonSink python, org.apache.spark.sql.SparkSession session) {
        this.description = description;
        this.python = python;
        this.session = session;
    }

    @Override
    public void addBatch(long batchId, Dataset<Row> data) {
        if (!isWatched) {
            session.streams().addListener(new UntilTheEnd(data.sparkSession().sparkContext().getLocalProperty(RUN_ID)));
            isWatched = true;
        }
        metrics = Answer.metricsOf(python.addBatch(asFrame((org.apache.spark.sql.classic.Dataset<Row>) data), batchId));
    }

    /** The same rows as a plain DataFrame: operators on `data` itself would belong to the plan of the query. */
    private static Dataset<Row> asFrame(org.apache.spark.sql.classic.Dataset<Row> data) {
        SparkSession session = data.sparkSession();
        return session.internalCreateDataFrame(data.queryExecution().toRdd(), data.schema(), false);
    }

    /** The metrics of the last micro-batch, which Spark shows in the progress of the query. */
    @Override
    public Map<String, String> metrics() {
        return metrics;
    }

    @Override
    public String toString() {
        return description;
    }

    /** Spark reports the end of a query to listeners, but not to its sink. */
    private final class UntilTheEnd extends StreamingQueryListener {
        private static final long serialVersionUID = 1;
        private final transient String runId;

        UntilTheEnd(String runId) {
            this.runId = runId;
        }

        @Override
        public void onQueryStarted(QueryStartedEvent event) {
            // Only the end is of interest.
        }

        @Override
        public void onQueryProgress(QueryProgressEvent event) {
            // Only the end is of interest.
        }

        @Override
        public void onQueryTerminated(QueryTerminatedEvent event) {
            if (event.runId().toString().equals(runId)) {
                session.streams().removeListener(this);
                try {
                    python.close();
                } catch (Py4JException e) {
                    // The program ended with its query, so there is nothing left to close.
                }
            }
        }
    }
}
