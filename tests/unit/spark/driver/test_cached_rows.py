"""Cached rows that Spark has lost and computes again, by what it says about its caches and executors."""

from __future__ import annotations

from fencepost.spark.driver.cached_rows import Cached, cached_frames, find_loss, lost_executors, stored_by_rdd
from fencepost.spark.driver.spark_facts import CachesSeen
from fencepost.spark.driver.spark_status import gone_among

BEGAN_MS = 1_763_288_430_000  # 2025-11-16T10:20:30Z


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


def test_only_executors_with_cached_rows_that_were_lost_since_the_transaction_began_count() -> None:
    executors = [
        {"id": "driver", "rddBlocks": 3, "isActive": True},
        {"id": "1", "rddBlocks": 2, "isActive": True},
        {"id": "2", "rddBlocks": 2, "isActive": False, "removeTime": "2025-11-16T10:20:29.999GMT"},
        {"id": "3", "rddBlocks": 0, "isActive": False, "removeTime": "2025-11-16T10:20:31.000GMT"},
        {"id": "4", "rddBlocks": 1, "isActive": False, "removeTime": "2025-11-16T10:20:30.000GMT"},
    ]
    gone = gone_among(executors)
    assert [executor.executor_id for executor in gone] == ["2", "3", "4"]
    assert lost_executors(gone, BEGAN_MS) == ["4"]
