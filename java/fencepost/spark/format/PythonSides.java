package fencepost.spark.format;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;

/** The Python processes that are connected with this JVM, by the name that a session has in its configuration. */
public final class PythonSides {
    /** Set by Python, with a name of its own for each process. */
    static final String NAME = "spark.fencepost.driver";

    private static final Map<String, PythonSide> SIDES = new ConcurrentHashMap<>();

    private PythonSides() {}

    /** Called from Python. */
    public static void connect(String name, PythonSide side) {
        SIDES.put(name, side);
    }

    static PythonSide of(SparkSession session) {
        String name = session.conf().get(NAME, "");
        PythonSide side = SIDES.get(name);
        if (side == null) {
            throw new SinkError("format(\"fencepost\") is served by the Python process of the driver, but none is connected with "
                    + "this session\n\nhint: start the session with fencepost.spark.configure(SparkSession.builder), or call "
                    + "fencepost.spark.configure(spark) in a session that has fencepost-spark.jar. With Spark Connect, use "
                    + "foreachBatch(ExactlyOnceSink(...))");
        }
        return side;
    }
}
