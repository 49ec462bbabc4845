"""What Spark knows of its jobs and caches: the facts by which `jobs.py` and `cached_rows.py` judge a write.

Two sources give the same facts. `spark_status.py` asks Spark's JVM one small question after another, in every session
with a Java gateway. `jar_status.py` lets fencepost-spark.jar collect them there, and gets one document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# In place of the number of an attempt: Spark does not show the stage any more, but it is known that the job skipped it,
# because another job had computed the stage. Where Spark keeps too many stages, it drops those first.
SKIPPED = -1


class JobSeen(NamedTuple):
    """A job that Spark shows. Spark updates its stages before it shows the end of the job."""

    is_running: bool
    # By stage: the number of its last attempt, or SKIPPED. None: Spark does not show the stage, which may have run.
    attempts: Mapping[int, int | None]


class SoFar(NamedTuple):
    """Counters of a SparkContext."""

    jobs: int  # Job ids are numbers below it.
    # Events that Spark's status has missed, because its queue was full. Spark counts them when they happen, so those of
    # a job are counted before its end is known.
    dropped_events: int


class JobsSeen(NamedTuple):
    """The jobs of a SparkContext from some job id on, of whatever thread."""

    so_far: int  # The number of all jobs. Job ids are numbers below it.
    shown: frozenset[int]  # Those that Spark showed before it was asked for the tag, and still shows after it.
    ours: Mapping[int, JobSeen]  # Those of them that have the tag.
    dropped_events: int  # As in SoFar, counted last.


class CachesSeen(NamedTuple):
    """Cached frames, which are RDDs. If there are none, the blocks are left out."""

    levels: Mapping[int, tuple[int, bool]]  # By RDD: copies of each partition, and whether Spark may keep them on disk.
    blocks: tuple[tuple[str, str], ...]  # Executors and the blocks that they store, such as ("1", "rdd_4_0,rdd_4_2").


class CacheLevel(NamedTuple):
    """How Spark stores cached rows."""

    description: str  # In Spark's words, such as `Memory Deserialized 1x Replicated`.
    has_disk: bool  # False: Spark drops rows when memory runs short, and computes them again.


class ExecutorSeen(NamedTuple):
    """An executor that Spark shows. It forgets some of those that are gone (`spark.ui.retainedDeadExecutors`)."""

    executor_id: str
    is_gone: bool
    cached_blocks: int
