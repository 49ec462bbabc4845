"""Spark's status of its jobs, stages and caches, by calls into its JVM.

A call takes time, and some are made in every micro-batch. So there are few, and `jar_status.py` needs fewer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from fencepost.spark.checkpoint.files import java_class
from fencepost.spark.driver.job_failures import java_exception_of
from fencepost.spark.driver.lineage import collect_lineage, collect_plan_leaves
from fencepost.spark.driver.spark_env import part_of_spark_env
from fencepost.spark.driver.spark_facts import SKIPPED, CacheLevel, CachesSeen, ExecutorSeen, JobSeen, JobsSeen, SoFar

# The queue whose events feed Spark's status.
DROPPED_EVENTS = "queue.appStatus.numDroppedEvents"


@contextmanager
def _forgotten(what: str) -> Iterator[None]:
    """Raises LookupError if Spark's status store does not have it."""
    try:
        yield
    except Exception as e:
        if java_exception_of(e)[0] != "java.util.NoSuchElementException":
            raise
        raise LookupError(what) from None


class SparkStatus:
    """Of one SparkContext."""

    def __init__(self, context: Any) -> None:
        self.context = context
        spark = context._jsc.sc()
        self._scheduler = spark.dagScheduler()
        self._tags = spark.statusTracker()
        self._infos = context._jsc.statusTracker()
        self._store = spark.statusStore()
        self._arrays = java_class(context._jvm, "java.util.Arrays")
        self._block_managers = part_of_spark_env(context, "blockManager").master()
        self.looked_until = 0  # The first job that no micro-batch has checked.
        self.looked_run_id: str | None = None  # The run of the last micro-batch that was checked.
        self._dropped_events = _counter_of_dropped_events(context)
        self.looked_dropped_events = 0  # The events that were dropped until then.
        self._json_mapper: Any = None  # Spark's own. It is kept: a new one would have to learn its classes again.

    # --- the facts about a write --------------------------------------------------------------------------------

    def tag_jobs(self, tag: str) -> SoFar:
        """Tag the jobs that this thread starts from now on. Returns the jobs before."""
        so_far = SoFar(int(self._scheduler.numTotalJobs()), int(self._dropped_events.getCount()))
        self.context.addJobTag(tag)
        return so_far

    def jobs_since(self, first: int, tag: str) -> JobsSeen:
        """The jobs from this id on."""
        so_far = int(self._scheduler.numTotalJobs())
        shown_before = [job_id for job_id in range(first, so_far) if self._infos.getJobInfo(job_id) is not None]
        if not shown_before:
            return JobsSeen(so_far, frozenset(), {}, int(self._dropped_events.getCount()))
        # PySpark's own tracker finds jobs by group only, and the job of a plain write has no group.
        tagged = set(self._tags.getJobIdsForTag(tag))
        ours = self.jobs(job_id for job_id in shown_before if job_id in tagged)
        others = [id_ for id_ in shown_before if id_ not in tagged and self._infos.getJobInfo(id_) is not None]
        return JobsSeen(so_far, frozenset({*ours, *others}), ours, int(self._dropped_events.getCount()))

    def jobs(self, job_ids: Iterable[int]) -> dict[int, JobSeen]:
        """Those of these jobs that Spark shows."""
        found = {}
        for job_id in job_ids:
            job = self._infos.getJobInfo(job_id)
            if job is not None:
                found[job_id] = self._seen(job)
        return found

    def _seen(self, job: Any) -> JobSeen:
        # Its status first: Spark updates the stages before it shows the end of the job.
        is_running = str(job.status().name()) == "RUNNING"
        stages = {stage_id: self._infos.getStageInfo(stage_id) for stage_id in job.stageIds()}
        attempts = {id_: None if stage is None else int(stage.currentAttemptId()) for id_, stage in stages.items()}
        if None in attempts.values() and self._has_skipped_those_forgotten(job, attempts):
            attempts = {id_: SKIPPED if attempt is None else attempt for id_, attempt in attempts.items()}
        return JobSeen(is_running, attempts)

    def _has_skipped_those_forgotten(self, job: Any, attempts: Mapping[int, int | None]) -> bool:
        """Are the stages that Spark does not show just those that the job skipped? It counts them when it has ended."""
        shown = [stage_id for stage_id, attempt in attempts.items() if attempt is not None]
        with suppress(LookupError), _forgotten("the job, or another stage of it"):
            skipped = sum(str(self._store.lastStageAttempt(id_).status().name()) == "SKIPPED" for id_ in shown)
            return skipped + len(attempts) - len(shown) == int(self._store.job(job.jobId()).numSkippedStages())
        return False

    def caches(self) -> CachesSeen:
        """From the block manager: the status store hears of a loss later than the tasks that compute again."""
        if not self.context._jsc.sc().getPersistentRDDs().nonEmpty():
            return CachesSeen({}, ())
        blocks = tuple(
            (status.blockManagerId().toString(), status.rddBlocks().keys().mkString(","))
            for status in self._block_managers.getStorageStatus()
        )
        rdds = self.context._jsc.getPersistentRDDs()
        # As an array: the end of a Java iterator is an exception, which PySpark examines with 75 calls of the JVM.
        levels = {rdd_id: rdds.get(rdd_id).getStorageLevel() for rdd_id in rdds.keySet().toArray()}
        return CachesSeen({rdd_id: (level.replication(), level.useDisk()) for rdd_id, level in levels.items()}, blocks)

    def executors(self) -> tuple[ExecutorSeen, ...]:
        # In the form of Spark's REST API: one call, however many executors there are.
        if self._json_mapper is None:
            writer = java_class(self.context._jvm, "org.apache.spark.status.api.v1.JacksonMessageWriter")()
            self._json_mapper = writer.mapper()
        executors = json.loads(self._json_mapper.writeValueAsString(self._store.executorList(False)))
        return executors_of(executors)

    # --- questions that most writes do not need -----------------------------------------------------------------

    def caches_behind(self, frame: Any) -> frozenset[CacheLevel]:
        """The levels of all caches that the rows of the frame are computed from, near or far."""
        levels, rdds = collect_plan_leaves(frame)
        lineage, _ = collect_lineage(rdds)
        persisted = self.context._jsc.getPersistentRDDs()
        levels += [persisted.get(id_).getStorageLevel() for id_ in persisted.keySet().toArray() if id_ in lineage]
        # Another thread may give a cache up meanwhile; then its level is none.
        return frozenset(CacheLevel(str(one.description()), bool(one.useDisk())) for one in levels if one.isValid())

    def job_ids_of_group(self, group: str) -> list[int]:
        # As one text: a long-running query has as many jobs as Spark keeps, and each element would be a call.
        text = str(self._arrays.toString(self._tags.getJobIdsForGroup(group)))
        return [int(number) for number in text.strip("[]").split(", ") if number]

    def rdd_of_stage(self, stage_id: int) -> tuple[int, bool]:
        """The RDD that the stage computes, and whether the stage wrote its rows to a shuffle. Raises LookupError."""
        with _forgotten(f"stage {stage_id}"):
            stage = self._store.lastStageAttempt(stage_id)
        return int(stage.rddIds().head()), bool(stage.shuffleWriteRecords())

    def submitted_ms(self, job_id: int) -> int | None:
        """When the job was submitted, by the clock of this machine. None: Spark has forgotten the job."""
        with suppress(LookupError), _forgotten(f"job {job_id}"):
            return int(self._store.job(job_id).submissionTime().get().getTime())
        return None

    def description(self, job_id: int) -> str:
        """The text that Spark shows with the job; empty if there is none, or Spark has forgotten the job."""
        with suppress(LookupError), _forgotten(f"job {job_id}"):
            said = str(self._store.job(job_id).description().toString())  # Scala's Option: Some(text), or None.
            return said[len("Some(") : -1] if said.startswith("Some(") else ""
        return ""


def _counter_of_dropped_events(context: Any) -> Any:
    return context._jsc.sc().listenerBus().metrics().metricRegistry().getCounters().get(DROPPED_EVENTS)


class DroppedBefore(NamedTuple):
    """The events that a SparkContext had dropped when a sink was created."""

    application_id: str | None
    events: int

    def of(self, context: Any) -> int:
        """0 for a context that was started later."""
        return self.events if context.applicationId == self.application_id else 0


def dropped_before_now() -> DroppedBefore:
    """By the context of this process, if there is one yet."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark is not None else None
    if context is not None and context._jsc is not None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError):  # Its JVM may have ended.
            return DroppedBefore(context.applicationId, int(_counter_of_dropped_events(context).getCount()))
    return DroppedBefore(None, 0)


def executors_of(executors: Iterable[Mapping[str, Any]]) -> tuple[ExecutorSeen, ...]:
    """From the form of Spark's REST API."""
    return tuple(
        ExecutorSeen(str(executor["id"]), bool(executor.get("removeTime")), executor.get("rddBlocks", 0))
        for executor in executors
    )
