"""Shuffles as Spark Connect shows them: in the texts of plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.spark.driver.connect_shuffles import (
    SHUFFLE,
    ConnectShuffles,
    check_adaptive,
    check_attempts,
    count_shuffles,
    may_shuffle,
)
from fencepost.spark.failures import SinkError

WITH_SHUFFLE = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=false
+- Exchange hashpartitioning(value#1, 2), REPARTITION_BY_COL, [plan_id=7]
   +- FileScan text [value#1]"""
WITHOUT = """== Physical Plan ==
BroadcastHashJoin [id#1L], [id#2L], Inner, BuildRight, false
:- Range (0, 10, step=1, splits=2)
+- BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, false]),false), [plan_id=9]
   +- Range (0, 10, step=1, splits=2)"""


def test_a_shuffle_is_recognized_by_the_plan() -> None:
    assert SHUFFLE.search(WITH_SHUFFLE)
    assert not SHUFFLE.search(WITHOUT)


EXISTING = """== Physical Plan ==
*(1) Scan ExistingRDD[value#1]"""


def session(stream: str, **settings: str) -> Any:
    query = SimpleNamespace(id="q", explain=lambda: print(stream))
    given = {name.replace("_", "."): value for name, value in settings.items()}
    conf = SimpleNamespace(get=lambda name, default=None: given.get(name, default))
    return SimpleNamespace(streams=SimpleNamespace(active=[query]), conf=conf)


def frame(plan: str) -> Any:
    return SimpleNamespace(_explain_string=lambda: plan)


def test_a_shuffle_of_the_stream_is_found_though_the_plan_of_the_micro_batch_does_not_show_it() -> None:
    behind = ConnectShuffles(session(WITH_SHUFFLE), "q", is_stateful=False)
    assert behind.are_in_stream
    with pytest.raises(SinkError, match="the rows to write come from a shuffle"):
        behind.check(frame(EXISTING))
    without = ConnectShuffles(session(WITHOUT), "q", is_stateful=False)
    assert not without.are_in_stream
    without.check(frame(EXISTING))
    with pytest.raises(SinkError, match="the rows to write come from a shuffle"):
        without.check(frame(WITH_SHUFFLE))


def test_a_stream_whose_plan_is_not_known_may_have_a_shuffle() -> None:
    assert may_shuffle("No physical plan. Waiting for data.")
    assert ConnectShuffles(session(WITHOUT), "another", is_stateful=False).are_in_stream
    assert ConnectShuffles(session(WITHOUT), "q", is_stateful=True).are_in_stream


def test_a_plain_frame_has_no_stream() -> None:
    assert not ConnectShuffles(session(WITH_SHUFFLE), None, is_stateful=False).are_in_stream


def test_several_shuffles_need_a_session_in_which_they_are_one_job() -> None:
    with pytest.raises(SinkError, match=r"hint: set spark\.sql\.adaptive\.enabled to false"):
        check_adaptive(2, "true")
    check_adaptive(2, "false")
    check_adaptive(1, "true")


# Plans of cached frames that were computed, as Spark 4.0.5 shows them, with shorter names.
CACHED = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=false
+- Project [cast(id#0L as string) AS value#55]
   +- InMemoryTableScan [id#0L]
         +- InMemoryRelation [id#0L], StorageLevel(disk, memory, deserialized, 1 replicas)
               +- AdaptiveSparkPlan isFinalPlan=true
                  +- == Final Plan ==
                     ResultQueryStage 1
                     +- ShuffleQueryStage 0
                        +- Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=39]
                           +- *(1) Range (0, 10, step=1, splits=2)
                  +- == Initial Plan ==
                     Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=6]
                     +- Range (0, 10, step=1, splits=2)
"""
CACHED_WITH_REUSE = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=false
+- InMemoryTableScan [k#277L, count#278L]
      +- InMemoryRelation [k#277L, count#278L], StorageLevel(disk, memory, deserialized, 1 replicas)
            +- AdaptiveSparkPlan isFinalPlan=true
               +- == Final Plan ==
                  ResultQueryStage 3
                  +- Union
                     :- *(3) HashAggregate(keys=[k#291L], functions=[count(1)])
                     :  +- ShuffleQueryStage 0
                     :     +- Exchange hashpartitioning(k#291L, 2), ENSURE_REQUIREMENTS, [plan_id=333]
                     :        +- *(1) HashAggregate(keys=[k#291L], functions=[partial_count(1)])
                     :           +- *(1) Project [(id#0L % 3) AS k#291L]
                     :              +- *(1) Range (0, 10, step=1, splits=2)
                     +- *(4) HashAggregate(keys=[k#292L], functions=[count(1)])
                        +- ShuffleQueryStage 2
                           +- ReusedExchange [k#292L, count#287L], Exchange hashpartitioning(k#291L, 2), ...
               +- == Initial Plan ==
                  Union
                  :- HashAggregate(keys=[k#291L], functions=[count(1)])
                  :  +- Exchange hashpartitioning(k#291L, 2), ENSURE_REQUIREMENTS, [plan_id=299]
                  :     +- HashAggregate(keys=[k#291L], functions=[partial_count(1)])
                  :        +- Project [(id#0L % 3) AS k#291L]
                  :           +- Range (0, 10, step=1, splits=2)
                  +- HashAggregate(keys=[k#292L], functions=[count(1)])
                     +- Exchange hashpartitioning(k#292L, 2), ENSURE_REQUIREMENTS, [plan_id=301]
                        +- HashAggregate(keys=[k#292L], functions=[partial_count(1)])
                           +- Project [(id#288L % 3) AS k#292L]
                              +- Range (0, 10, step=1, splits=2)
"""
CACHED_OF_CACHED = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=false
+- Project [cast(k#74L as string) AS value#172]
   +- InMemoryTableScan [k#74L]
         +- InMemoryRelation [k#74L, count#75L], StorageLevel(disk, memory, deserialized, 1 replicas)
               +- AdaptiveSparkPlan isFinalPlan=true
                  +- == Final Plan ==
                     ResultQueryStage 2
                     +- *(2) HashAggregate(keys=[k#88L], functions=[count(1)])
                        +- ShuffleQueryStage 1
                           +- Exchange hashpartitioning(k#88L, 2), ENSURE_REQUIREMENTS, [plan_id=144]
                              +- *(1) HashAggregate(keys=[k#88L], functions=[partial_count(1)])
                                 +- *(1) Project [(id#0L % 3) AS k#88L]
                                    +- TableCacheQueryStage 0
                                       +- InMemoryTableScan [id#0L]
                                             +- InMemoryRelation [id#0L], StorageLevel(disk, memory, 1 replicas)
                                                   +- AdaptiveSparkPlan isFinalPlan=true
                                 +- == Final Plan ==
                                    ResultQueryStage 1
                                    +- ShuffleQueryStage 0
                                       +- Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=39]
                                          +- *(1) Range (0, 10, step=1, splits=2)
                                 +- == Initial Plan ==
                                    Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=6]
                                    +- Range (0, 10, step=1, splits=2)
                  +- == Initial Plan ==
                     HashAggregate(keys=[k#88L], functions=[count(1)])
                     +- Exchange hashpartitioning(k#88L, 2), ENSURE_REQUIREMENTS, [plan_id=91]
                        +- HashAggregate(keys=[k#88L], functions=[partial_count(1)])
                           +- Project [(id#0L % 3) AS k#88L]
                              +- InMemoryTableScan [id#0L]
                                    +- InMemoryRelation [id#0L], StorageLevel(disk, memory, deserialized, 1 replicas)
                                          +- AdaptiveSparkPlan isFinalPlan=true
                        +- == Final Plan ==
                           ResultQueryStage 1
                           +- ShuffleQueryStage 0
                              +- Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=39]
                                 +- *(1) Range (0, 10, step=1, splits=2)
                        +- == Initial Plan ==
                           Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=6]
                           +- Range (0, 10, step=1, splits=2)
"""
CACHED_BEFORE_A_SHUFFLE = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=false
+- Project [cast(id#0L as string) AS value#101]
   +- InMemoryTableScan [id#0L]
         +- InMemoryRelation [id#0L], StorageLevel(disk, memory, deserialized, 1 replicas)
               +- AdaptiveSparkPlan isFinalPlan=true
                  +- == Final Plan ==
                     ResultQueryStage 2
                     +- Union
                        :- TableCacheQueryStage 0
                        :  +- InMemoryTableScan [id#0L]
                        :        +- InMemoryRelation [id#0L], StorageLevel(disk, memory, deserialized, 1 replicas)
                        :              +- AdaptiveSparkPlan isFinalPlan=true
                     +- == Final Plan ==
                        ResultQueryStage 1
                        +- ShuffleQueryStage 0
                           +- Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=33]
                              +- *(1) Range (0, 10, step=1, splits=2)
                     +- == Initial Plan ==
                        Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=6]
                        +- Range (0, 10, step=1, splits=2)
                        +- ShuffleQueryStage 1
                           +- Exchange hashpartitioning(id#39L, 2), REPARTITION_BY_NUM, [plan_id=108]
                              +- *(1) Range (0, 7, step=1, splits=2)
                  +- == Initial Plan ==
                     Union
                     :- InMemoryTableScan [id#0L]
                     :     +- InMemoryRelation [id#0L], StorageLevel(disk, memory, deserialized, 1 replicas)
                     :           +- AdaptiveSparkPlan isFinalPlan=true
               +- == Final Plan ==
                  ResultQueryStage 1
                  +- ShuffleQueryStage 0
                     +- Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=33]
                        +- *(1) Range (0, 10, step=1, splits=2)
               +- == Initial Plan ==
                  Exchange hashpartitioning(id#0L, 2), REPARTITION_BY_NUM, [plan_id=6]
                  +- Range (0, 10, step=1, splits=2)
                     +- Exchange hashpartitioning(id#39L, 2), REPARTITION_BY_NUM, [plan_id=79]
                        +- Range (0, 7, step=1, splits=2)
"""


@pytest.mark.parametrize(
    ("plan", "shuffles"),
    [(WITHOUT, 0), (WITH_SHUFFLE, 1), (CACHED, 1), (CACHED_WITH_REUSE, 1), (CACHED_OF_CACHED, 2)],
    ids=["none", "one", "cached", "reused", "a cache of a cache"],
)
def test_a_shuffle_counts_once_however_often_the_plan_shows_it(plan: str, shuffles: int) -> None:
    assert count_shuffles(plan) == shuffles


def test_a_shuffle_after_a_cached_frame_counts_though_it_is_indented_like_a_part_of_its_initial_plan() -> None:
    assert count_shuffles(CACHED_BEFORE_A_SHUFFLE) == 2


def test_a_healthy_cached_frame_is_written() -> None:
    ready = session(WITHOUT, spark_stage_maxConsecutiveAttempts="1")
    for plan in (CACHED, CACHED_WITH_REUSE):
        ConnectShuffles(ready, "q", is_stateful=False).check(frame(plan))
    with pytest.raises(SinkError, match="come from 2 shuffles"):
        ConnectShuffles(ready, "q", is_stateful=False).check(frame(CACHED_OF_CACHED))


def test_with_spark_connect_a_frame_behind_a_shuffle_needs_a_server_that_runs_no_stage_again() -> None:
    for setting in (None, "4"):
        with pytest.raises(SinkError, match=r"hint: start the Spark Connect server with spark\.stage\."):
            check_attempts(True, setting)
    check_attempts(True, "1")
    check_attempts(False, None)
