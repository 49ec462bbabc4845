package fencepost.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import org.apache.spark.JobExecutionStatus;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.JavaSparkStatusTracker;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.status.api.v1.StageStatus;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.storage.StorageStatus;
import scala.collection.Iterator;

/**
 * What Spark knows of its jobs and caches, as JSON. It judges nothing: Python does, by the same facts that it collects itself
 * in a session without this jar. Python's `driver/spark_facts.py` says what the fields mean.
 */
public final class SparkFacts {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** In place of the number of an attempt: see Python. */
    private static final int SKIPPED = -1;
    /** Of the queue whose events feed Spark's status. */
    private static final String DROPPED_EVENTS = "queue.appStatus.numDroppedEvents";

    /** Tags the jobs that this thread starts from now on. Returns the number of jobs so far, and of events that were dropped. */
    public String tagJobs(JavaSparkContext spark, String tag) {
        ArrayNode soFar = JSON.createArrayNode().add(jobsSoFar(spark)).add(droppedEvents(spark));
        spark.addJobTag(tag);
        return text(soFar);
    }

    /** The jobs from this id on; those with the tag with their stages. */
    public String jobsSince(JavaSparkContext spark, int first, String tag) {
        JavaSparkStatusTracker tracker = spark.statusTracker();
        int soFar = jobsSoFar(spark);
        ObjectNode found = JSON.createObjectNode().put("so_far", soFar);
        ArrayNode shown = found.putArray("shown");
        ObjectNode ours = found.putObject("ours");
        if (first < soFar) {
            Set<Integer> shownBefore = new HashSet<>();
            for (int id = first; id < soFar; id++) {
                if (tracker.getJobInfo(id) != null) {
                    shownBefore.add(id);
                }
            }
            Set<Integer> tagged = new HashSet<>();
            for (int id : spark.sc().statusTracker().getJobIdsForTag(tag)) {
                tagged.add(id);
            }
            for (int id = first; id < soFar; id++) {
                SparkJobInfo job = tracker.getJobInfo(id);
                // Of a job that appeared in between, or is forgotten, it is not known whether it has the tag.
                if (job != null && shownBefore.contains(id)) {
                    shown.add(id);
                    if (tagged.contains(id)) {
                        ours.set(Integer.toString(id), seen(spark, job));
                    }
                }
            }
        }
        return text(found.put("dropped_events", droppedEvents(spark)));
    }

    /** Those of these jobs that Spark shows. jobIds: numbers with commas between them. */
    public String jobs(JavaSparkContext spark, String jobIds) {
        JavaSparkStatusTracker tracker = spark.statusTracker();
        ObjectNode found = JSON.createObjectNode();
        for (String id : jobIds.split(",")) {
            SparkJobInfo job = id.isEmpty() ? null : tracker.getJobInfo(Integer.parseInt(id));
            if (job != null) {
                found.set(id, seen(spark, job));
            }
        }
        return text(found);
    }

    /** The cached RDDs and their blocks. The blocks first: an RDD that is given up loses its blocks first. */
    public String caches(JavaSparkContext spark) {
        ObjectNode found = JSON.createObjectNode();
        ObjectNode levels = found.putObject("levels");
        ArrayNode blocks = found.putArray("blocks");
        if (!spark.getPersistentRDDs().isEmpty()) {
            for (StorageStatus executor : spark.sc().env().blockManager().master().getStorageStatus()) {
                String stored = executor.rddBlocks().keys().mkString(",");
                blocks.addArray().add(executor.blockManagerId().toString()).add(stored);
            }
            for (Map.Entry<Integer, JavaRDD<?>> rdd : spark.getPersistentRDDs().entrySet()) {
                StorageLevel level = rdd.getValue().getStorageLevel();
                levels.putArray(rdd.getKey().toString()).add(level.replication()).add(level.useDisk());
            }
        }
        return text(found);
    }

    /** The levels of all caches that the rows of the frame are computed from, near or far. */
    public String cachesBehind(Dataset<?> frame) {
        ArrayNode levels = JSON.createArrayNode();
        for (StorageLevel level : CachesBehind.of(frame)) {
            levels.addArray().add(level.description()).add(level.useDisk());
        }
        return text(levels);
    }

    /** Those that run, and those that are gone. */
    public String executors(JavaSparkContext spark) {
        ArrayNode found = JSON.createArrayNode();
        Iterator<ExecutorSummary> all = spark.sc().statusStore().executorList(false).iterator();
        while (all.hasNext()) {
            ExecutorSummary executor = all.next();
            boolean isGone = executor.removeTime().isDefined();
            found.addArray().add(executor.id()).add(isGone).add(executor.rddBlocks());
        }
        return text(found);
    }

    private static int jobsSoFar(JavaSparkContext spark) {
        return spark.sc().dagScheduler().numTotalJobs();
    }

    private static long droppedEvents(JavaSparkContext spark) {
        return spark.sc().listenerBus().metrics().metricRegistry().getCounters().get(DROPPED_EVENTS).getCount();
    }

    /** Its status first: Spark updates the stages before it shows the end of the job. */
    private static ObjectNode seen(JavaSparkContext spark, SparkJobInfo job) {
        JavaSparkStatusTracker tracker = spark.statusTracker();
        ObjectNode seen = JSON.createObjectNode().put("running", job.status() == JobExecutionStatus.RUNNING);
        ObjectNode attempts = seen.putObject("attempts");
        List<Integer> shown = new ArrayList<>();
        List<Integer> forgotten = new ArrayList<>();
        for (int id : job.stageIds()) {
            SparkStageInfo stage = tracker.getStageInfo(id);
            (stage == null ? forgotten : shown).add(id);
            attempts.put(Integer.toString(id), stage == null ? null : Integer.valueOf(stage.currentAttemptId()));
        }
        if (!forgotten.isEmpty() && hasSkipped(spark.sc().statusStore(), job.jobId(), forgotten.size(), shown)) {
            forgotten.forEach(id -> attempts.put(Integer.toString(id), SKIPPED));
        }
        return seen;
    }

    /** Are the stages that Spark does not show just those that the job skipped? It counts them when it has ended. */
    private static boolean hasSkipped(AppStatusStore store, int jobId, int forgotten, List<Integer> shown) {
        try {
            long skipped = shown.stream()
                    .filter(id -> store.lastStageAttempt(id).status() == StageStatus.SKIPPED)
                    .count();
            return skipped + forgotten == store.job(jobId).numSkippedStages();
        } catch (NoSuchElementException e) {
            return false; // The job, or another stage of it, was forgotten in between.
        }
    }

    private static String text(JsonNode found) {
        try {
            return JSON.writeValueAsString(found);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
    }
}
