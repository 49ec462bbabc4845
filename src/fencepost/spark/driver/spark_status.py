"""What Spark shows of its jobs and stages. Calls into the JVM take time in every micro-batch, so there are few."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fencepost.spark.checkpoint.files import java_class


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


class SparkStatus:
    """Of one SparkContext."""

    def __init__(self, context: Any) -> None:
        self.context = context
        spark = context._jsc.sc()
        self._scheduler = spark.dagScheduler()
        self._tags = spark.statusTracker()
        self._infos = context._jsc.statusTracker()
        self._json_mapper: Any = None  # Spark's own. It is kept: a new one would have to learn its classes again.

    def jobs_so_far(self) -> int:
        """The number of jobs of the SparkContext, of whatever thread. Job ids are numbers below it."""
        return int(self._scheduler.numTotalJobs())

    def job_ids(self, tag: str) -> list[int]:
        # PySpark's own tracker finds jobs by group only, and the job of a plain write has no group.
        return list(self._tags.getJobIdsForTag(tag))

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
        executors = self.context._jsc.sc().statusStore().executorList(False)
        found: list[dict[str, Any]] = json.loads(self._json_mapper.writeValueAsString(executors))
        return found
