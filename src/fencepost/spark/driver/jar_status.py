"""Spark's status with fencepost-spark.jar (`SparkFacts.java`): the facts about a write are one call for each look."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.spark.driver.spark_facts import CacheLevel, CachesSeen, ExecutorSeen, JobSeen, JobsSeen, SoFar
from fencepost.spark.driver.spark_status import SparkStatus


class JarStatus(SparkStatus):
    """java_facts: a `SparkFacts` of the jar."""

    def __init__(self, context: Any, java_facts: Any) -> None:
        super().__init__(context)
        self._spark = context._jsc
        self._java = java_facts

    def tag_jobs(self, tag: str) -> SoFar:
        return SoFar(*json.loads(self._java.tagJobs(self._spark, tag)))

    def jobs_since(self, first: int, tag: str) -> JobsSeen:
        document = json.loads(self._java.jobsSince(self._spark, first, tag))
        shown, ours = frozenset(document["shown"]), _jobs(document["ours"])
        return JobsSeen(document["so_far"], shown, ours, document["dropped_events"])

    def jobs(self, job_ids: Iterable[int]) -> dict[int, JobSeen]:
        return _jobs(json.loads(self._java.jobs(self._spark, ",".join(map(str, job_ids)))))

    def caches(self) -> CachesSeen:
        document = json.loads(self._java.caches(self._spark))
        levels = {int(rdd_id): (copies, has_disk) for rdd_id, (copies, has_disk) in document["levels"].items()}
        return CachesSeen(levels, tuple((executor, blocks) for executor, blocks in document["blocks"]))

    def caches_behind(self, frame: Any) -> frozenset[CacheLevel]:
        return frozenset(CacheLevel(*one) for one in json.loads(self._java.cachesBehind(frame._jdf)))

    def executors(self) -> tuple[ExecutorSeen, ...]:
        return tuple(ExecutorSeen(*one) for one in json.loads(self._java.executors(self._spark)))


def _jobs(document: Mapping[str, Any]) -> dict[int, JobSeen]:
    return {
        int(job_id): JobSeen(job["running"], {int(stage): attempt for stage, attempt in job["attempts"].items()})
        for job_id, job in document.items()
    }
