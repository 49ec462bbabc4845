package fencepost.spark;

import fencepost.spark.encode.Columns;
import fencepost.spark.lease.LeaseAddress;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source behind `transaction.write`: its tasks write into the transaction that Python's side of the sink has opened.
 *
 * It is for the sink alone, which gives these options: `host` and `port` of the lease service, `driver` for the name under
 * which the driver itself finds it, `token` (a name whose value Spark hides), and `write`, the number of the write.
 */
public final class LeasedSink implements TableProvider {
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        throw new UnsupportedOperationException("this data source can only be written");
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new LeasedTable(schema);
    }

    private record LeasedTable(StructType schema) implements SupportsWrite {
        @Override
        public String name() {
            return "fencepost";
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new WriteBuilder() {
                @Override
                public Write build() {
                    return new LeasedWrite(info);
                }
            };
        }
    }

    private record LeasedWrite(LogicalWriteInfo info) implements Write {
        @Override
        public String description() {
            return "fencepost";
        }

        @Override
        public BatchWrite toBatch() {
            CaseInsensitiveStringMap options = info.options();
            int port = options.getInt("port", 0);
            String token = options.get("token");
            return new LeasedBatchWrite(
                    new LeaseAddress(options.get("host"), port, token, options.get("fingerprint")),
                    new LeaseAddress(options.get("driver"), port, token, options.get("fingerprint")),
                    options.getInt("write", 0),
                    Columns.of(info.schema()));
        }
    }
}
