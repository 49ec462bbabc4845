"""Cached rows that Spark has lost and computes again, by what it says about its caches and executors."""

from __future__ import annotations

from fencepost.spark.driver.cached_rows import Cached, find_loss, lost_executors

BEGAN_MS = 1_763_288_430_000  # 2025-11-16T10:20:30Z


def looks(*cached: Cached) -> dict[int, Cached]:
    return {one.rdd_id: one for one in cached}


def test_a_cache_that_grows_to_its_size_has_lost_nothing() -> None:
    assert find_loss({}, looks(Cached(1, 2, 3, True))) is None
    assert find_loss(looks(Cached(1, 2, 3, True)), looks(Cached(1, 3, 3, True))) is None


def test_a_cache_with_fewer_partitions_than_before_has_lost_some() -> None:
    loss = find_loss(
        looks(Cached(1, 3, 3, True), Cached(2, 5, 5, True)), looks(Cached(1, 3, 3, True), Cached(2, 3, 5, True))
    )
    assert loss == "2 of 5 cached partitions of RDD 2"


def test_a_partition_that_is_stored_on_two_executors_was_computed_twice() -> None:
    assert ": 4 are stored instead of 3" in (find_loss({}, looks(Cached(1, 4, 3, True))) or "")


def test_a_frame_that_was_unpersisted_is_not_lost() -> None:
    assert find_loss(looks(Cached(1, 3, 3, True)), {}) is None


def test_a_cache_in_memory_only_loses_partitions_without_harm_to_others() -> None:
    assert find_loss(looks(Cached(1, 3, 3, False)), looks(Cached(1, 1, 3, False))) is None


def test_only_executors_with_cached_rows_that_were_lost_since_the_transaction_began_count() -> None:
    executors = [
        {"id": "driver", "rddBlocks": 3, "isActive": True},
        {"id": "1", "rddBlocks": 2, "isActive": True},
        {"id": "2", "rddBlocks": 2, "isActive": False, "removeTime": "2025-11-16T10:20:29.999GMT"},
        {"id": "3", "rddBlocks": 0, "isActive": False, "removeTime": "2025-11-16T10:20:31.000GMT"},
        {"id": "4", "rddBlocks": 1, "isActive": False, "removeTime": "2025-11-16T10:20:30.000GMT"},
    ]
    assert lost_executors(executors, BEGAN_MS) == ["4"]
