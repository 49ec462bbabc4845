"""Whether Spark ran a stage again, by what its status tracker shows. What it does not show counts as run again."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from fencepost.spark.driver.jobs import SHUFFLE, check_connect, find_repeated_stage, find_unknown_job
from fencepost.spark.failures import SinkError


class Job(NamedTuple):
    stageIds: list[int]  # noqa: N815
    status: str = "SUCCEEDED"


class Stage(NamedTuple):
    currentAttemptId: int  # noqa: N815


class Tracker:
    """As Spark's: jobs and stages appear late, and are forgotten."""

    def __init__(self, jobs: dict[int, Job], stages: dict[int, Stage], appear_after: int = 0) -> None:
        self._jobs, self._stages = jobs, stages
        self._questions_until_they_appear = appear_after

    def getJobInfo(self, job_id: int) -> Job | None:  # noqa: N802
        self._questions_until_they_appear -= 1
        return self._jobs.get(job_id) if self._questions_until_they_appear < 0 else None

    def getStageInfo(self, stage_id: int) -> Stage | None:  # noqa: N802
        return self._stages.get(stage_id)


def test_a_job_whose_stages_ran_once_is_no_problem() -> None:
    tracker = Tracker({3: Job([5, 6])}, {5: Stage(0), 6: Stage(0)})
    assert find_unknown_job(tracker, range(3, 4), lag_s=0) is None
    assert find_repeated_stage(tracker, 3, lag_s=0) is None


def test_a_stage_that_ran_again_is_named() -> None:
    tracker = Tracker({3: Job([5, 6])}, {5: Stage(1), 6: Stage(0)})
    assert "Spark ran stage 5 of the micro-batch again" in (find_repeated_stage(tracker, 3, lag_s=0) or "")


def test_a_stage_that_spark_has_forgotten_may_have_run_again() -> None:
    said = find_repeated_stage(Tracker({3: Job([5, 6])}, {6: Stage(0)}), 3, lag_s=0) or ""
    assert "Spark does not show stage 5 of job 3 any more" in said
    assert "hint: spark.ui.retainedStages" in said


def test_a_job_that_spark_has_forgotten_may_have_run_a_stage_again() -> None:
    tracker = Tracker({4: Job([6])}, {6: Stage(0)})
    assert "Spark does not show job 3" in (find_unknown_job(tracker, range(3, 5), lag_s=0) or "")
    assert "Spark does not show job 3 any more" in (find_repeated_stage(tracker, 3, lag_s=0) or "")


def test_a_job_that_spark_shows_a_moment_later_is_waited_for() -> None:
    assert find_unknown_job(Tracker({3: Job([])}, {}, appear_after=2), range(3, 4)) is None


def test_a_job_whose_end_spark_does_not_show_may_have_run_a_stage_again() -> None:
    tracker = Tracker({3: Job([5], "RUNNING")}, {5: Stage(0)})
    assert "it does not show the end of job 3" in (find_repeated_stage(tracker, 3, lag_s=0) or "")


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


def test_with_spark_connect_a_frame_behind_a_shuffle_needs_a_server_that_runs_no_stage_again() -> None:
    for setting in (None, "4"):
        with pytest.raises(SinkError, match=r"hint: start the Spark Connect server with spark\.stage\."):
            check_connect(True, setting)
    check_connect(True, "1")
    check_connect(False, None)
