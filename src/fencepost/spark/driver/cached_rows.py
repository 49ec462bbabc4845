"""Cached rows that are lost while a transaction is open.

A function that writes several frames from one cached frame relies on the cache: all outputs come from one computation.
If Spark loses a part of the cache, with its executor or otherwise, it silently computes that part again, and the rows
may differ. Outputs of two computations must not be committed together, so the sink aborts and runs the micro-batch
again.

Spark Connect does not show lost rows: there `compute_once` is the way to write several frames.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fencepost.spark.driver.spark_facts import CachesSeen, ExecutorSeen
from fencepost.spark.driver.spark_status import SparkStatus
from fencepost.spark.failures import BatchBroken, SinkError

PAUSE_S = 0.05
HINT = "\n\nhint: transaction.compute_once(frame) gives a frame that is never computed again"


class Cached(NamedTuple):
    """One cached frame as Spark sees it: an RDD, and which of its partitions are stored on which executor."""

    stored: frozenset[tuple[str, int]]
    copies: int  # Of each partition.
    has_disk: bool  # False: Spark drops partitions when memory runs short, and computes them again.


def find_loss(before: Mapping[int, Cached], now: Mapping[int, Cached]) -> str | None:
    """What was lost between two looks; None if nothing was. The numbers are ids of RDDs.

    A frame that is not cached any more was given up on purpose. A cache in memory only may lose partitions at any
    time; `_check_levels` keeps it out of a transaction with several writes.
    """
    for rdd_id, (stored, copies, has_disk) in now.items():
        if not has_disk:
            continue
        lost = before[rdd_id].stored - stored if rdd_id in before else ()
        if lost:
            return f"{len(lost)} of {len(before[rdd_id].stored)} cached partitions of RDD {rdd_id}"
        places = Counter(partition for _, partition in stored)
        if places and max(places.values()) > copies:
            # By a task that could not fetch the partition from another executor, or by a speculative copy of a task.
            return f"the one version of a cached partition of RDD {rdd_id}: it is stored {max(places.values())} times"
    return None


def stored_by_rdd(blocks_of_executors: Iterable[tuple[str, str]]) -> dict[int, set[tuple[str, int]]]:
    """From executors and their blocks, such as ("1", "rdd_4_0,rdd_4_2"), to RDDs and where their partitions are."""
    found: dict[int, set[tuple[str, int]]] = {}
    for executor, blocks in blocks_of_executors:
        for block in filter(None, blocks.split(",")):
            _, rdd_id, partition = block.split("_")
            found.setdefault(int(rdd_id), set()).add((executor, int(partition)))
    return found


def cached_frames(seen: CachesSeen) -> dict[int, Cached]:
    stored = stored_by_rdd(seen.blocks)
    return {
        rdd_id: Cached(frozenset(stored.get(rdd_id, ())), copies, has_disk)
        for rdd_id, (copies, has_disk) in seen.levels.items()
    }


def lost_executors(before: Iterable[ExecutorSeen], now: Iterable[ExecutorSeen]) -> list[str]:
    """The ids of executors with cached rows that were lost since. Spark gives no id twice.

    Not by the time of the loss: the clock of the machine may jump.
    """
    gone_before = {executor.executor_id for executor in before if executor.is_gone}
    return [e.executor_id for e in now if e.is_gone and e.cached_blocks > 0 and e.executor_id not in gone_before]


def forgotten_executors(before: Iterable[ExecutorSeen], now: Iterable[ExecutorSeen]) -> list[str]:
    """The ids of executors that Spark does not show any more.

    If too many are gone, Spark forgets some, in the order of their ids as texts: maybe those that were lost last.
    """
    shown = {executor.executor_id for executor in now}
    return [executor.executor_id for executor in before if executor.executor_id not in shown]


class CachedRows:
    """Looks at Spark's caches before and after each write of a transaction, and before its commit.

    To be made when the transaction begins.
    """

    def __init__(self, status: SparkStatus | None) -> None:
        self._status = status  # None: Spark Connect.
        self._executors_before = status.executors() if status is not None else ()
        self._seen: dict[int, Cached] = {}
        self._writes = 0

    def before_write(self, frame: Any) -> None:
        self.look()
        self._writes += 1
        has_memory_only = any(not cached.has_disk for cached in self._seen.values())
        if self._status is not None and self._writes > 1 and has_memory_only:
            self._check_levels(self._status, frame)

    def look(self) -> None:
        """Raises BatchBroken if a part of a cached frame is lost."""
        if self._status is None:
            return
        now = cached_frames(self._status.caches())
        if find_loss(self._seen, now) is not None:
            # Another thread may be giving a frame up: Spark removes its partitions first, and then the frame.
            time.sleep(PAUSE_S)
            now = cached_frames(self._status.caches())
        if (loss := find_loss(self._seen, now)) is not None:
            raise _broken(f"Spark lost {loss}")
        self._seen |= now

    def finish(self) -> None:
        """Before the commit. Raises BatchBroken if an executor with cached rows was lost, however briefly it lived."""
        self.look()
        if self._status is None or not self._seen:
            return
        executors = self._status.executors()
        if lost := lost_executors(self._executors_before, executors):
            raise _broken(f"Spark lost executor {', '.join(lost)}, which held cached rows")
        if forgotten := forgotten_executors(self._executors_before, executors):
            raise BatchBroken(
                f"Spark does not show executor {forgotten[0]} any more, so it is not known whether it, or another one, "
                "was lost with cached rows while the transaction was open\n\nhint: a larger "
                "spark.ui.retainedDeadExecutors (default: 100) makes this rare"
            )

    def _check_levels(self, status: SparkStatus, frame: Any) -> None:
        for level, has_disk in sorted(status.caches_behind(frame)):
            if not has_disk:
                raise SinkError(
                    f"write {self._writes} of the micro-batch reads rows that are cached with {level}: "
                    "Spark drops such rows when memory runs short, and computes them again, perhaps differently than "
                    f"for the write before{HINT}; or use persist(StorageLevel.MEMORY_AND_DISK) for the frame or the "
                    "RDD that is cached"
                )


def _broken(what: str) -> BatchBroken:
    return BatchBroken(
        f"{what}, while the transaction was open: outputs that were written before and after it may come from two "
        f"computations{HINT}"
    )
