"""Whether Spark ran a stage again, by what its status tracker shows. What it does not show counts as run again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fencepost.spark.driver.jobs import Jobs, find_repeated_shuffle, find_unknown_job, stages_that_ran_once
from fencepost.spark.failures import BatchBroken


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


def problem_of(tracker: Tracker, job_id: int) -> str:
    with pytest.raises(BatchBroken) as broken:
        stages_that_ran_once(tracker, job_id, lag_s=0)
    return str(broken.value)


def test_a_job_whose_stages_ran_once_is_no_problem() -> None:
    tracker = Tracker({3: Job([5, 6])}, {5: Stage(0), 6: Stage(0)})
    assert find_unknown_job(tracker, range(3, 4), lag_s=0) is None
    assert stages_that_ran_once(tracker, 3, lag_s=0) == [5, 6]


def test_a_stage_that_ran_again_is_named() -> None:
    tracker = Tracker({3: Job([5, 6])}, {5: Stage(1), 6: Stage(0)})
    assert "Spark ran stage 5 of the micro-batch again" in problem_of(tracker, 3)


def test_a_stage_that_spark_has_forgotten_may_have_run_again() -> None:
    said = problem_of(Tracker({3: Job([5, 6])}, {6: Stage(0)}), 3)
    assert "Spark does not show stage 5 of job 3 any more" in said
    assert "hint: spark.ui.retainedStages" in said


def test_a_job_that_spark_has_forgotten_may_have_run_a_stage_again() -> None:
    tracker = Tracker({4: Job([6])}, {6: Stage(0)})
    assert "Spark does not show job 3" in (find_unknown_job(tracker, range(3, 5), lag_s=0) or "")
    assert "Spark does not show job 3 any more" in problem_of(tracker, 3)


def test_a_job_that_spark_shows_a_moment_later_is_waited_for() -> None:
    assert find_unknown_job(Tracker({3: Job([])}, {}, appear_after=2), range(3, 4)) is None


def test_a_job_whose_end_spark_does_not_show_may_have_run_a_stage_again() -> None:
    tracker = Tracker({3: Job([5], "RUNNING")}, {5: Stage(0)})
    assert "it does not show the end of job 3" in problem_of(tracker, 3)


# --- shuffles that two jobs write -----------------------------------------------------------------------------


class Shuffles:
    """The RDD whose rows a stage wrote to a shuffle. A stage that is not here was skipped, or wrote none."""

    def __init__(self, **rdds: int) -> None:
        self._rdds = {int(stage.removeprefix("stage_")): rdd for stage, rdd in rdds.items()}

    def rdd_of_shuffle(self, stage_id: int) -> int | None:
        return self._rdds.get(stage_id)


ADAPTIVE_JOBS = {1: [10], 2: [11, 12], 3: [13, 14, 15]}  # Two shuffles, each a job of its own, and the write.


def test_shuffles_that_are_jobs_of_their_own_and_whose_files_are_read_are_no_problem() -> None:
    assert find_repeated_shuffle(Shuffles(stage_10=100, stage_12=200), ADAPTIVE_JOBS) is None


def test_a_shuffle_that_a_later_job_computed_again_under_a_new_stage_is_named() -> None:
    lost = Shuffles(stage_10=100, stage_12=200, stage_13=100, stage_14=200)
    said = find_repeated_shuffle(lost, ADAPTIVE_JOBS) or ""
    assert "Spark lost shuffle files that stage 10 of job 1 wrote, and computed them again in stage 13 of job 3" in said


def test_a_single_shuffle_may_be_computed_again_because_no_other_was_made_from_it() -> None:
    assert find_repeated_shuffle(Shuffles(stage_10=100, stage_11=100), {1: [10], 2: [11, 12]}) is None


def test_a_transaction_with_one_job_does_not_ask_spark_about_its_shuffles() -> None:
    assert find_repeated_shuffle(None, {3: [13, 14, 15]}) is None


# --- jobs that Spark forgets -----------------------------------------------------------------------------------


class ForgetfulStatus:
    """As SparkStatus: it forgets job 3 just before it is asked which jobs have the tag."""

    looked_until = 0

    def __init__(self) -> None:
        self.context = SimpleNamespace(addJobTag=lambda tag: None, removeJobTag=lambda tag: None)
        self._jobs = {3: Job([5]), 4: Job([6])}
        self._so_far = iter((3, 5, 5))

    def jobs_so_far(self) -> int:
        return next(self._so_far)

    def job_ids(self, tag: str) -> list[int]:
        del self._jobs[3]
        return [4]

    def getJobInfo(self, job_id: int) -> Job | None:  # noqa: N802
        return self._jobs.get(job_id)

    def getStageInfo(self, stage_id: int) -> Stage:  # noqa: N802
        return Stage(0)


def test_a_job_that_spark_forgets_between_two_questions_may_have_been_ours() -> None:
    status: Any = ForgetfulStatus()
    shuffles: Any = None
    with pytest.raises(BatchBroken, match="Spark does not show job 3"), Jobs(None, status, shuffles) as jobs:
        jobs.check()
