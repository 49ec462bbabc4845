package fencepost.spark.encode;

import java.io.Serializable;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Where the columns of Spark's own Kafka sink are in a row; -1: the frame does not have the column.
 *
 * Python's `driver/dataframes.py` has checked names and types before the job starts.
 */
public record Columns(
        int key,
        int value,
        int headers,
        int timestamp,
        int topic,
        int partition,
        boolean isKeyText,
        boolean isValueText,
        boolean isTimestampInMs)
        implements Serializable {

    public static Columns of(StructType schema) {
        return new Columns(
                index(schema, "key"),
                index(schema, "value"),
                index(schema, "headers"),
                index(schema, "timestamp"),
                index(schema, "topic"),
                index(schema, "partition"),
                isA(schema, "key", StringType.class),
                isA(schema, "value", StringType.class),
                isA(schema, "timestamp", LongType.class));
    }

    private static int index(StructType schema, String name) {
        StructField[] fields = schema.fields();
        for (int n = 0; n < fields.length; n++) {
            if (fields[n].name().equals(name)) {
                return n;
            }
        }
        return -1;
    }

    private static boolean isA(StructType schema, String name, Class<?> type) {
        int index = index(schema, name);
        return index >= 0 && type.isInstance(schema.fields()[index].dataType());
    }
}
