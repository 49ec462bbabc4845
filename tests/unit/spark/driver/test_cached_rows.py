"""Cached rows that Spark has lost and computes again, by what it says about its caches and executors."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.spark.driver.cached_rows import (
    Cached,
    CachedRows,
    cached_frames,
    find_loss,
    forgotten_executors,
    lost_executors,
    stored_by_rdd,
)
from fencepost.spark.driver.spark_facts import CachesSeen, ExecutorSeen
from fencepost.spark.driver.spark_status import executors_of
from fencepost.spark.failures import BatchBroken


def cached(*stored: tuple[str, int], copies: int = 1, has_disk: bool = True) -> Cached:
    return Cached(frozenset(stored), copies, has_disk)


def test_a_cache_that_grows_has_lost_nothing() -> None:
    first, second = ("1", 0), ("2", 1)
    assert find_loss({}, {4: cached(first)}) is None
    assert find_loss({4: cached(first)}, {4: cached(first, second)}) is None


def test_a_partition_that_is_not_where_it_was_is_lost_though_it_was_computed_again_elsewhere() -> None:
    before, now = cached(("1", 0), ("2", 1)), cached(("1", 0), ("3", 1))
    assert find_loss({4: before}, {4: now}) == "1 of 2 cached partitions of RDD 4"
    assert find_loss({4: before}, {4: cached(("1", 0))}) == "1 of 2 cached partitions of RDD 4"
    assert find_loss({4: before}, {4: cached()}) == "2 of 2 cached partitions of RDD 4"


def test_a_partition_that_is_stored_on_two_executors_was_computed_twice() -> None:
    twice = (("1", 0), ("2", 0))
    assert "it is stored 2 times" in (find_loss({}, {4: cached(*twice)}) or "")
    assert find_loss({}, {4: cached(*twice, copies=2)}) is None


def test_a_frame_that_was_unpersisted_is_not_lost() -> None:
    assert find_loss({4: cached(("1", 0))}, {}) is None


def test_a_cache_in_memory_only_loses_partitions_without_harm_to_others() -> None:
    assert find_loss({4: cached(("1", 0), has_disk=False)}, {4: cached(has_disk=False)}) is None


def test_blocks_are_read_as_spark_names_them() -> None:
    blocks = [("1", "rdd_4_0,rdd_4_12,rdd_7_0"), ("2", ""), ("3", "rdd_4_1")]
    assert stored_by_rdd(blocks) == {4: {("1", 0), ("1", 12), ("3", 1)}, 7: {("1", 0)}}


def test_the_partitions_of_a_frame_are_those_that_executors_store() -> None:
    seen = CachesSeen({4: (1, True), 7: (2, False)}, (("1", "rdd_4_0,rdd_9_0"), ("2", "rdd_4_1")))
    assert cached_frames(seen) == {4: cached(("1", 0), ("2", 1)), 7: cached(copies=2, has_disk=False)}


def executor(executor_id: str, cached_blocks: int, removed: str | None = None) -> dict[str, Any]:
    """As Spark's REST API shows it."""
    shown: dict[str, Any] = {"id": executor_id, "rddBlocks": cached_blocks, "isActive": removed is None}
    return shown if removed is None else shown | {"removeTime": f"2025-11-16T{removed}GMT"}


class Status:
    """Of a Spark that has one cached frame, and loses executors."""

    def __init__(self, *executors: dict[str, Any]) -> None:
        self.shown = list(executors)

    def caches(self) -> CachesSeen:
        return CachesSeen({4: (1, True)}, (("5", "rdd_4_0"),))

    def executors(self) -> tuple[ExecutorSeen, ...]:
        return executors_of(self.shown)


@pytest.mark.parametrize("clock", ["10:20:30.000", "08:20:30.000", "12:20:30.000"])
def test_an_executor_that_is_lost_in_the_transaction_breaks_it_whatever_the_clock_shows(clock: str) -> None:
    status: Any = Status(executor("driver", 3), executor("1", 2, "10:20:29.000"), executor("2", 2, "23:59:59.999"))
    cached_rows = CachedRows(status)
    cached_rows.look()
    cached_rows.finish()
    status.shown += [executor("3", 0, clock), executor("4", 1, clock)]
    with pytest.raises(BatchBroken, match="Spark lost executor 4, which held cached rows"):
        cached_rows.finish()


def test_executors_that_are_alive_or_had_no_cached_rows_or_were_gone_before_are_no_loss() -> None:
    now = executors_of(
        [
            executor("1", 2),
            executor("2", 2, "10:20:29.999"),
            executor("3", 0, "10:20:31.000"),
            executor("4", 1, "10:20:30.000"),
        ]
    )
    assert [one.executor_id for one in now if one.is_gone] == ["2", "3", "4"]
    assert lost_executors(now[:2], now) == ["4"]


def test_an_executor_that_spark_has_forgotten_may_have_been_lost_with_cached_rows() -> None:
    status: Any = Status(executor("driver", 3), executor("7", 2), executor("8", 0, "10:20:30.000"))
    cached_rows = CachedRows(status)
    cached_rows.look()
    del status.shown[1]
    with pytest.raises(BatchBroken, match=r"does not show executor 7 any more(.|\n)*spark.ui.retainedDeadExecutors"):
        cached_rows.finish()
    assert forgotten_executors((), executors_of(status.shown)) == []
