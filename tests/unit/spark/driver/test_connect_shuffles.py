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


def test_with_spark_connect_a_frame_behind_a_shuffle_needs_a_server_that_runs_no_stage_again() -> None:
    for setting in (None, "4"):
        with pytest.raises(SinkError, match=r"hint: start the Spark Connect server with spark\.stage\."):
            check_attempts(True, setting)
    check_attempts(True, "1")
    check_attempts(False, None)
