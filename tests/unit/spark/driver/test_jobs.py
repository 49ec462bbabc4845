"""Whether Spark ran a stage again, by what its status tracker shows. What it does not show counts as run again."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.spark.driver import jobs as jobs_module
from fencepost.spark.driver.jobs import (
    Jobs,
    MicroBatchJobs,
    WrittenShuffles,
    find_dropped_events,
    find_unknown_job,
    is_settled,
    stages_that_ran_once,
    when_settled,
)
from fencepost.spark.driver.spark_facts import SKIPPED, JobSeen, JobsSeen, SoFar
from fencepost.spark.driver.spark_status import DroppedBefore, SparkStatus
from fencepost.spark.failures import BatchBroken


def ended(attempts: dict[int, int | None]) -> JobSeen:
    return JobSeen(False, attempts)


def seen(so_far: int, *shown: int, **ours: JobSeen) -> JobsSeen:
    return JobsSeen(so_far, frozenset(shown), {int(name.removeprefix("job")): job for name, job in ours.items()}, 0)


def problem_of(job: JobSeen | None) -> str:
    with pytest.raises(BatchBroken) as broken:
        stages_that_ran_once(3, job)
    return str(broken.value)


def test_a_job_whose_stages_ran_once_is_no_problem() -> None:
    job = ended({5: 0, 6: 0})
    assert is_settled(seen(4, 3, job3=job), range(3, 4))
    assert stages_that_ran_once(3, job) == [5, 6]


def test_a_stage_that_ran_again_is_named() -> None:
    assert "Spark ran stage 5 of the micro-batch again" in problem_of(ended({5: 1, 6: 0}))


def test_a_stage_that_spark_has_forgotten_may_have_run_again() -> None:
    said = problem_of(ended({5: None, 6: 0}))
    assert "Spark does not show stage 5 of job 3 any more" in said
    assert "hint: spark.ui.retainedStages" in said


def test_a_job_that_spark_has_forgotten_may_have_run_a_stage_again() -> None:
    assert "Spark does not show job 3" in (find_unknown_job(seen(5, 4, job4=ended({6: 0})), range(3, 5)) or "")
    assert "Spark does not show job 3" in problem_of(None)


def test_a_job_that_spark_shows_a_moment_later_is_waited_for_and_so_is_its_end() -> None:
    looks = iter([seen(4, 3, job3=JobSeen(True, {5: 0})), seen(4, 3, job3=ended({5: 1}))])
    last = when_settled(seen(4), lambda: next(looks), lambda jobs: is_settled(jobs, range(3, 4)))
    assert last.ours[3].attempts == {5: 1}
    assert next(looks, None) is None


def test_jobs_of_other_queries_and_those_that_start_later_are_not_waited_for() -> None:
    running = JobSeen(True, {})
    assert is_settled(seen(5, 3, 4, job3=ended({})), range(3, 5))
    assert is_settled(seen(6, 3, 4, job3=ended({}), job4=running), range(3, 4))
    assert not is_settled(seen(6, 3, 4, job3=ended({}), job4=running), range(3, 5))


def test_a_job_that_does_not_settle_is_not_waited_for_without_end() -> None:
    assert when_settled(seen(4), lambda: seen(4), lambda jobs: is_settled(jobs, range(3, 4)), lag_s=0) == seen(4)


def test_a_job_whose_end_spark_does_not_show_may_have_run_a_stage_again() -> None:
    assert "it does not show the end of job 3" in problem_of(JobSeen(True, {5: 0}))


# --- shuffles that two jobs write -----------------------------------------------------------------------------


class Shuffles:
    """The RDD whose rows a stage wrote to a shuffle. A stage that is not here was skipped, or wrote none.

    skipped: the RDDs of stages that were skipped. repeated: stages that ran twice.
    """

    def __init__(
        self,
        rdds: dict[int, int],
        forgotten: int | None = None,
        skipped: dict[int, int] | None = None,
        repeated: tuple[int, ...] = (),
    ) -> None:
        self._rdds, self._forgotten = rdds, forgotten
        self._skipped, self._repeated = skipped or {}, repeated
        self.questions: list[int] = []

    def rdd_of_stage(self, stage_id: int) -> tuple[int, bool]:
        self.questions.append(stage_id)
        if stage_id == self._forgotten:
            raise LookupError(stage_id)
        return self._rdds.get(stage_id, self._skipped.get(stage_id, -stage_id)), stage_id in self._rdds

    def attempts(self, stage_ids: list[int]) -> dict[int, int | None]:
        return {id_: None if id_ == self._forgotten else int(id_ in self._repeated) for id_ in stage_ids}


ADAPTIVE_JOBS = {1: [10], 2: [11, 12], 3: [13, 14, 15]}  # Two shuffles, each a job of its own, and the write.


def check(shuffles: Shuffles, jobs: dict[int, list[int]]) -> None:
    written = WrittenShuffles(shuffles)
    for job_id, stage_ids in jobs.items():
        written.add(job_id, stage_ids)
        written.check()


def test_shuffles_that_are_jobs_of_their_own_and_whose_files_are_read_are_no_problem() -> None:
    check(Shuffles({10: 100, 12: 200}), ADAPTIVE_JOBS)


def test_a_shuffle_that_a_later_job_computed_again_under_a_new_stage_is_named() -> None:
    lost = Shuffles({10: 100, 12: 200, 13: 100, 14: 200})
    said = "Spark lost shuffle files that stage 10 of job 1 wrote, and computed them again in stage 13 of job 3"
    with pytest.raises(BatchBroken, match=said):
        check(lost, ADAPTIVE_JOBS)


def test_a_single_shuffle_must_not_be_computed_again_either_because_cached_rows_may_come_from_its_first_files() -> None:
    with pytest.raises(BatchBroken, match=r"stage 10 of job 1 .* stage 11 of job 2"):
        check(Shuffles({10: 100, 11: 100}), {1: [10], 2: [11, 12]})


def test_a_stage_that_spark_forgot_before_a_later_write_may_have_run_again() -> None:
    with pytest.raises(BatchBroken, match="Spark does not show stage 10 of job 1 any more"):
        check(Shuffles({}, forgotten=10), {1: [10], 2: [11, 12]})


def test_spark_is_asked_about_each_stage_once() -> None:
    shuffles = Shuffles({})
    check(shuffles, {n: [10 * n, 10 * n + 1] for n in range(20)})
    assert len(shuffles.questions) == len(set(shuffles.questions)) == 40


@pytest.mark.parametrize("jobs", [{3: [13, 14, 15]}, {3: [13], 4: [14]}])
def test_a_transaction_with_one_job_or_without_shuffles_asks_nothing(jobs: dict[int, list[int]]) -> None:
    shuffles = Shuffles({})
    check(shuffles, jobs)
    assert shuffles.questions == []


# --- jobs of other threads --------------------------------------------------------------------------------------


def check_beside(shuffles: Shuffles, other: list[int], ours: list[int]) -> None:
    written = WrittenShuffles(shuffles)
    written.add(2, ours)
    written.add_other(1, shuffles.attempts(other))
    written.check()


def test_a_shuffle_that_a_job_of_another_thread_wrote_and_ours_computed_again_is_named() -> None:
    with pytest.raises(BatchBroken, match=r"stage 10 of job 1 wrote, and computed them again in stage 12 of job 2"):
        check_beside(Shuffles({10: 100, 12: 100}), [10, 11], [12, 13])


def test_shuffle_files_that_a_job_of_another_thread_computed_in_two_runs_are_not_read() -> None:
    shuffles = Shuffles({10: 100}, skipped={12: 100}, repeated=(10,))
    with pytest.raises(BatchBroken, match="Spark ran stage 10 of job 1 again, whose shuffle files"):
        check_beside(shuffles, [10, 11], [12, 13])


def test_a_stage_of_another_thread_that_spark_has_forgotten_may_have_run_again() -> None:
    with pytest.raises(BatchBroken, match="Spark does not show stage 10 of job 1 any more"):
        check_beside(Shuffles({}, forgotten=10), [10], [12, 13])


def test_jobs_of_another_query_may_run_their_own_stages_as_often_as_they_like() -> None:
    check_beside(Shuffles({10: 100, 11: 100, 12: 200}, repeated=(10, 11)), [10, 11], [12, 13])


def test_files_of_another_thread_that_are_whole_may_be_read() -> None:
    check_beside(Shuffles({10: 100}, skipped={12: 100}), [10, 11], [12, 13])


def test_a_stage_that_two_jobs_wait_for_is_written_once() -> None:
    check_beside(Shuffles({10: 100}), [10, 11], [10, 12])


# --- jobs that run before the sink is called ------------------------------------------------------------------------


class DescribedJobs:
    def __init__(self, descriptions: dict[int, str]) -> None:
        self._descriptions = descriptions

    def job_ids_of_group(self, group: str) -> list[int]:
        assert group == "run"
        return sorted(self._descriptions)

    def description(self, job_id: int) -> str:
        return self._descriptions[job_id]


def test_only_jobs_of_this_micro_batch_count_among_those_before_the_sink() -> None:
    text = "id = a<br/>runId = run<br/>batch = "
    status: Any = DescribedJobs({4: text + "1", 5: text + "1", 6: text + "11", 7: text + "11"})
    assert MicroBatchJobs("run", 11).among(status, range(5, 8)) == [6, 7]
    assert MicroBatchJobs("run", 1).among(status, range(5, 8)) == []
    assert MicroBatchJobs("run", 11).among(status, range(0)) == []


class Session:
    """As `SparkStatus`: jobs 0, 1, ... in the order in which they were submitted. The write is the last one.

    batches: the micro-batch of a job that the query ran; the others are of other threads.
    submitted_ms: of each job; None if Spark has forgotten the job.
    """

    def __init__(
        self,
        jobs: list[JobSeen],
        batches: dict[int, int] | None = None,
        submitted_ms: list[int | None] | None = None,
        looked_run_id: str | None = "run",
    ) -> None:
        self._all = jobs
        self._batches = batches or {}
        self._submitted_ms = submitted_ms or [PLANNED_MS + 1] * len(jobs)
        self.looked_until = 0
        self.looked_run_id = looked_run_id
        self.looked_dropped_events = 0
        self.dropped_events = [0]  # At each look; the last one repeats.
        self.context = SimpleNamespace(removeJobTag=lambda tag: None)

    def tag_jobs(self, tag: str) -> SoFar:
        return SoFar(len(self._all) - 1, self._dropped())

    def _dropped(self) -> int:
        return self.dropped_events.pop(0) if len(self.dropped_events) > 1 else self.dropped_events[0]

    def jobs_since(self, first: int, tag: str) -> JobsSeen:
        so_far = len(self._all)
        ours = {n: self._all[n] for n in range(first, so_far)}
        return JobsSeen(so_far, frozenset(range(first, so_far)), ours, self._dropped())

    def jobs(self, job_ids: list[int]) -> dict[int, JobSeen]:
        return {job_id: self._all[job_id] for job_id in job_ids if self._submitted_ms[job_id] is not None}

    def job_ids_of_group(self, group: str) -> list[int]:
        return [job_id for job_id in self._batches if self._submitted_ms[job_id] is not None]

    def description(self, job_id: int) -> str:
        return f"batch = {self._batches[job_id]}"

    def submitted_ms(self, job_id: int) -> int | None:
        return self._submitted_ms[job_id]

    def rdd_of_stage(self, stage_id: int) -> tuple[int, bool]:
        return 100 + stage_id, False


PLANNED_MS = 1_000
WRITE = JobSeen(False, {90: 0, 91: 0})  # Behind a shuffle.


def check_batch(session: Any, planned_ms: int | None = PLANNED_MS) -> None:
    """Of micro-batch 7 of the run `run`."""
    shuffles: Any = None
    with Jobs(None, session, shuffles, MicroBatchJobs("run", 7, planned_ms)) as jobs:
        jobs.check()


@pytest.mark.parametrize("batches", [{0: 7}, {}])
def test_a_stage_before_the_sink_that_spark_has_forgotten_may_have_run_again(batches: dict[int, int]) -> None:
    with pytest.raises(BatchBroken, match="Spark does not show stage 5 of job 0 any more"):
        check_batch(Session([ended({5: None, 6: 0}), WRITE], batches))


@pytest.mark.parametrize("batches", [{0: 7}, {}])
def test_a_stage_before_the_sink_that_was_skipped_is_not_missed(batches: dict[int, int]) -> None:
    check_batch(Session([ended({5: SKIPPED, 6: 0}), WRITE], batches))


def test_a_skipped_stage_of_the_write_is_missed_because_its_shuffle_cannot_be_checked() -> None:
    with pytest.raises(BatchBroken, match="Spark does not show stage 90 of job 0 any more"):
        check_batch(Session([ended({90: SKIPPED, 91: 0})]))


def test_a_stage_of_an_earlier_micro_batch_may_be_forgotten() -> None:
    check_batch(Session([ended({5: None}), WRITE], {0: 6}, [PLANNED_MS - 1, PLANNED_MS + 1]))


def test_a_job_that_spark_has_forgotten_since_it_planned_the_micro_batch_may_have_run_a_stage_again() -> None:
    forgotten = [ended({}), ended({5: 0}), WRITE]
    for first in (None, PLANNED_MS - 1):
        with pytest.raises(BatchBroken, match="Spark does not show job 1") as broken:
            check_batch(Session(forgotten, {}, [first, None, PLANNED_MS + 1]))
        assert "hint: spark.ui.retainedJobs" in str(broken.value)


def test_jobs_that_spark_has_forgotten_are_not_missed_if_a_later_one_is_older_than_the_micro_batch() -> None:
    jobs = [ended({}), ended({4: 0}), ended({5: 0}), WRITE]
    check_batch(Session(jobs, {2: 7}, [None, PLANNED_MS - 1, PLANNED_MS + 1, PLANNED_MS + 2]))


def test_jobs_that_spark_has_forgotten_do_not_matter_to_rows_that_come_out_of_no_shuffle() -> None:
    check_batch(Session([ended({}), ended({90: 0})], {}, [None, PLANNED_MS + 1]))


@pytest.mark.parametrize("run_id", [None, "an earlier run"])
def test_jobs_that_spark_had_forgotten_when_a_run_began_are_not_missed(run_id: str | None) -> None:
    """The run may repeat a micro-batch that was planned long ago: then all jobs that Spark shows are younger."""
    session = Session([ended({}), WRITE], {}, [None, PLANNED_MS + 1], looked_run_id=run_id)
    check_batch(session)
    assert (session.looked_until, session.looked_run_id) == (2, "run")


def test_forgotten_jobs_are_not_missed_if_the_time_of_the_plan_is_not_known() -> None:
    check_batch(Session([ended({}), WRITE], {}, [None, PLANNED_MS + 1]), planned_ms=None)


# --- events that Spark dropped ------------------------------------------------------------------------------------


def test_dropped_events_may_have_said_that_a_stage_ran_again() -> None:
    said = find_dropped_events(1_234) or ""
    assert "Spark dropped 1,234 events of its jobs, so it is not known whether it ran a stage" in said
    assert "hint: a queue of Spark's driver was full. Start Spark with a larger " in said
    assert "spark.scheduler.listenerbus.eventqueue.appStatus.capacity" in said
    assert find_dropped_events(0) is None


def test_events_that_are_dropped_during_a_write_break_it_once() -> None:
    session = Session([ended({5: 0})])
    session.dropped_events = [3, 5]
    with pytest.raises(BatchBroken, match="Spark dropped 2 events"):
        check_batch(session)
    check_batch(session)


def test_events_that_were_dropped_before_a_write_matter_only_to_jobs_that_ran_before_it() -> None:
    alone = Session([ended({5: 0})])
    alone.dropped_events = [3]
    check_batch(alone)
    behind = Session([ended({4: 0}), ended({5: 0})], {0: 7})
    behind.dropped_events = [3]
    with pytest.raises(BatchBroken, match="Spark dropped 3 events"):
        check_batch(behind)
    check_batch(behind)


def test_what_was_dropped_before_a_sink_was_created_does_not_concern_it() -> None:
    before = DroppedBefore("app-1", 7)
    assert before.of(SimpleNamespace(applicationId="app-1")) == 7
    assert before.of(SimpleNamespace(applicationId="app-2")) == 0


# --- jobs that Spark forgets -----------------------------------------------------------------------------------


class Infos:
    """As Spark's trackers: jobs 3 and 4 with a stage each. It forgets job 3 just before it is asked for the tag."""

    def __init__(self) -> None:
        self._jobs = {3: 5, 4: 6}

    def getJobInfo(self, job_id: int) -> Any:  # noqa: N802
        if job_id not in self._jobs:
            return None
        status = SimpleNamespace(name=lambda: "SUCCEEDED")
        return SimpleNamespace(status=lambda: status, stageIds=lambda: [self._jobs[job_id]])

    def getStageInfo(self, stage_id: int) -> Any:  # noqa: N802
        return SimpleNamespace(currentAttemptId=lambda: 0)

    def getJobIdsForTag(self, tag: str) -> list[int]:  # noqa: N802
        self._jobs.pop(3, None)
        return [4]


def test_a_job_that_spark_forgets_between_two_questions_may_have_been_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    status: Any = SparkStatus.__new__(SparkStatus)
    status.context = SimpleNamespace(addJobTag=lambda tag: None, removeJobTag=lambda tag: None)
    status.looked_until, status.looked_run_id, status.looked_dropped_events = 0, None, 0
    status._dropped_events = SimpleNamespace(getCount=lambda: 0)
    status._infos = status._tags = Infos()
    so_far = iter((3, 5))
    status._scheduler = SimpleNamespace(numTotalJobs=lambda: next(so_far, 5))
    clock = itertools.count(step=5)
    monkeypatch.setattr(jobs_module, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda s: None))
    shuffles: Any = None
    with pytest.raises(BatchBroken, match="Spark does not show job 3"), Jobs(None, status, shuffles) as jobs:
        jobs.check()
