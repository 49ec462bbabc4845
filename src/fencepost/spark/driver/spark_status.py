"""Spark's status of its jobs and stages. Calls into the JVM take time in every micro-batch, so there are few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from fencepost.spark.checkpoint.files import java_class
from fencepost.spark.driver.job_failures import java_exception_of
from fencepost.spark.driver.spark_env import part_of_spark_env


class StageStatus(NamedTuple):
    currentAttemptId: int  # noqa: N815 - the name in Spark.


class JobStatus:
    """Asks for a field when it is needed."""

    def __init__(self, java: Any) -> None:
        self._java = java

    @property
    def status(self) -> str:
        return str(self._java.status().name())

    @property
    def stageIds(self) -> list[int]:  # noqa: N802 - the name in Spark.
        return list(self._java.stageIds())


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
        self._json_mapper: Any = None  # Spark's own. It is kept: a new one would have to learn its classes again.

    def jobs_so_far(self) -> int:
        """The number of jobs of the SparkContext, of whatever thread. Job ids are numbers below it."""
        return int(self._scheduler.numTotalJobs())

    def job_ids(self, tag: str) -> list[int]:
        # PySpark's own tracker finds jobs by group only, and the job of a plain write has no group.
        return list(self._tags.getJobIdsForTag(tag))

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

    def getJobInfo(self, job_id: int) -> JobStatus | None:  # noqa: N802 - the name in Spark.
        """None: Spark does not show it yet, or has forgotten it."""
        job = self._infos.getJobInfo(job_id)
        return None if job is None else JobStatus(job)

    def getStageInfo(self, stage_id: int) -> StageStatus | None:  # noqa: N802 - the name in Spark.
        stage = self._infos.getStageInfo(stage_id)
        return None if stage is None else StageStatus(int(stage.currentAttemptId()))

    def executors(self) -> list[dict[str, Any]]:
        """All that the SparkContext has or had, in the form of Spark's REST API: one call, however many there are."""
        if self._json_mapper is None:
            writer = java_class(self.context._jvm, "org.apache.spark.status.api.v1.JacksonMessageWriter")()
            self._json_mapper = writer.mapper()
        executors = self._store.executorList(False)
        found: list[dict[str, Any]] = json.loads(self._json_mapper.writeValueAsString(executors))
        return found

    def has_persisted_rdds(self) -> bool:
        return bool(self.context._jsc.sc().getPersistentRDDs().nonEmpty())

    def persisted_rdds(self) -> dict[int, tuple[int, bool]]:
        """By the id of the RDD: how many copies of each partition Spark keeps, and whether it may keep them on disk."""
        rdds = self.context._jsc.getPersistentRDDs()
        # As an array: the end of a Java iterator is an exception, which PySpark examines with 75 calls of the JVM.
        levels = {rdd_id: rdds.get(rdd_id).getStorageLevel() for rdd_id in rdds.keySet().toArray()}
        return {rdd_id: (level.replication(), level.useDisk()) for rdd_id, level in levels.items()}

    def stored_blocks(self) -> Iterator[tuple[str, str]]:
        """Executors and the blocks that they store, such as ("1", "rdd_4_0,rdd_4_2").

        From the block manager: the status store hears of a loss later than the tasks that compute again.
        """
        for status in self._block_managers.getStorageStatus():
            yield status.blockManagerId().toString(), status.rddBlocks().keys().mkString(",")
