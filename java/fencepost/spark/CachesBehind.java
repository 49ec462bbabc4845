package fencepost.spark;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.ExternalRDD;
import org.apache.spark.sql.execution.ExternalRDDScanExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.CachedRDDBuilder;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.storage.StorageLevel;
import scala.collection.Iterator;

/**
 * The caches that the rows of a frame are computed from: in its plan, behind cached frames, and in the lineage of RDDs. Follows
 * Python's `driver/lineage.py`.
 */
final class CachesBehind {
    private final Set<StorageLevel> levels = new LinkedHashSet<>();
    private final Set<Integer> planIds = new HashSet<>();
    private final Set<Integer> rddIds = new HashSet<>();
    private final Deque<QueryPlan<?>> plans = new ArrayDeque<>();
    private final Deque<RDD<?>> rdds = new ArrayDeque<>();

    private CachesBehind() {}

    static Set<StorageLevel> of(Dataset<?> frame) {
        CachesBehind found = new CachesBehind();
        // A new plan: Spark looks for caches when it first plans a frame, and some may have come later.
        found.plans.add(frame.sparkSession().sessionState().executePlan(
                frame.queryExecution().commandExecuted(), CommandExecutionMode.ALL()).withCachedData());
        while (!found.plans.isEmpty()) {
            QueryPlan<?> plan = found.plans.pop();
            found.addLeaves(plan);
            Iterator<?> subqueries = plan.subqueriesAll().iterator();
            while (subqueries.hasNext()) {
                found.addLeaves((QueryPlan<?>) subqueries.next());
            }
        }
        while (!found.rdds.isEmpty()) {
            found.addParents(found.rdds.pop());
        }
        return found.levels;
    }

    private void addLeaves(QueryPlan<?> plan) {
        Iterator<?> leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            if (leaf instanceof InMemoryRelation relation) {
                add(relation.cacheBuilder());
            } else if (leaf instanceof InMemoryTableScanExec scan) {
                add(scan.relation().cacheBuilder());
            } else if (leaf instanceof AdaptiveSparkPlanExec adaptive) {
                plans.add(adaptive.inputPlan());
            } else if (leaf instanceof LogicalRDD rows) {
                add(rows.rdd());
            } else if (leaf instanceof ExternalRDD<?> rows) {
                add(rows.rdd());
            } else if (leaf instanceof RDDScanExec scan) {
                add(scan.rdd());
            } else if (leaf instanceof ExternalRDDScanExec<?> scan) {
                add(scan.rdd());
            }
        }
    }

    private void add(CachedRDDBuilder cache) {
        SparkPlan plan = cache.cachedPlan();
        if (planIds.add(plan.id())) {
            levels.add(cache.storageLevel());
            plans.add(plan);
        }
    }

    private void add(RDD<?> rdd) {
        if (rddIds.add(rdd.id())) {
            rdds.add(rdd);
        }
    }

    private void addParents(RDD<?> rdd) {
        if (!rdd.getStorageLevel().equals(StorageLevel.NONE())) {
            levels.add(rdd.getStorageLevel());
        }
        Iterator<Dependency<?>> dependencies = rdd.dependencies().iterator();
        while (dependencies.hasNext()) {
            add(dependencies.next().rdd());
        }
    }
}
