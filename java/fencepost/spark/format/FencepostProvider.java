package fencepost.spark.format;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * `format("fencepost")` of write and writeStream. It decides nothing: Python's process gets the options and the rows, and
 * runs the same sink as foreachBatch does.
 */
public final class FencepostProvider implements DataSourceRegister, StreamSinkProvider, CreatableRelationProvider {
    @Override
    public String shortName() {
        return "fencepost";
    }

    @Override
    public Sink createSink(
            SQLContext context,
            scala.collection.immutable.Map<String, String> parameters,
            Seq<String> partitionColumns,
            OutputMode outputMode) {
        List<String> columns = CollectionConverters.asJava(partitionColumns);
        if (!columns.isEmpty()) {
            throw new IllegalArgumentException("partitionBy(" + String.join(", ", columns) + ") has no meaning for Kafka"
                    + "\n\nhint: the key chooses the partition, or a column `partition`");
        }
        Map<String, String> options = CollectionConverters.asJava(parameters);
        PythonSink python = PythonSides.of(context.sparkSession()).open(Answer.asJson(options));
        Answer.metricsOf(python.check(context.sparkSession()));
        return new MicroBatchSink(python.name(), python, context.sparkSession());
    }

    @Override
    public BaseRelation createRelation(
            SQLContext context,
            SaveMode mode,
            scala.collection.immutable.Map<String, String> parameters,
            Dataset<Row> frame) {
        String options = Answer.asJson(CollectionConverters.asJava(parameters));
        Answer.metricsOf(PythonSides.of(context.sparkSession()).write(options, mode.toString(), frame));
        return new Written(context);
    }

    /** Python checks the columns, with a better message. */
    @Override
    public boolean supportsDataType(DataType type) {
        return true;
    }

    /** Spark wants a relation that could be read. */
    private static final class Written extends BaseRelation {
        private final SQLContext context;

        Written(SQLContext context) {
            this.context = context;
        }

        @Override
        public SQLContext sqlContext() {
            return context;
        }

        @Override
        public StructType schema() {
            return new StructType();
        }
    }
}
