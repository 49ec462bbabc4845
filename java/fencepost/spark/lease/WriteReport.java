package fencepost.spark.lease;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** Tells the driver's Python process which results Spark accepted for a write, one frame for each task. */
public final class WriteReport implements AutoCloseable {
    private final LeaseConnection connection;

    public WriteReport(LeaseAddress address, int writeNumber) {
        connection = new LeaseConnection(address, "write " + writeNumber);
        connection.greet(LeaseConnection.JSON.createObjectNode().put("write", writeNumber));
    }

    public void add(TaskResult result) {
        try {
            ObjectNode message = LeaseConnection.JSON.createObjectNode().put("op", "result");
            message.set("result", LeaseConnection.JSON.readTree(result.json()));
            connection.tell(message);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(e);
        }
    }

    /** These were all. Returns when the driver has them. */
    public void finish(int count) {
        connection.ask(LeaseConnection.JSON.createObjectNode().put("op", "results").put("count", count));
    }

    @Override
    public void close() {
        connection.close();
    }
}
