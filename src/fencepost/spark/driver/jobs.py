"""The Spark jobs of one attempt at a micro-batch: they can be cancelled, and asked whether a stage ran twice.

Within one job, Spark numbers the attempts at a stage. If a job finds that shuffle files of an earlier job are lost, it
repeats a part of the stages that wrote them, as new stages. With Spark's adaptive execution, each shuffle is a job of
its own. `connect_shuffles.py` has the weaker checks that Spark Connect allows.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fencepost.spark.driver.connect_shuffles import ConnectShuffles
from fencepost.spark.driver.spark_facts import SKIPPED, JobSeen, JobsSeen
from fencepost.spark.driver.spark_status import SparkStatus
from fencepost.spark.failures import BatchBroken, SinkError

# Spark reports a failed task in less time than this. A cancelled job says only that it was cancelled, so the sink waits
# for the better message.
CANCEL_AFTER_S = 1.0
STATUS_LAG_S = 10.0
PAUSE_S = 0.005
T = TypeVar("T")


class Jobs:
    """All jobs that are started in a `with` block, by the thread that runs it: Spark tags the jobs of a thread.

    status: None with Spark Connect.
    stream: None for a plain frame.
    """

    def __init__(
        self, session: Any, status: SparkStatus | None, shuffles: ConnectShuffles, stream: MicroBatchJobs | None = None
    ) -> None:
        self._session = session
        self._status = status
        self._shuffles = shuffles
        self._stream = stream
        self._tag = f"fencepost-{uuid.uuid4().hex}"
        self._is_over = False
        self._first_job_id = self._next_job_id = 0  # The first job that was not checked yet.
        self._before = range(0)  # The jobs between the last micro-batch and this one, of whatever query.
        self._follows_look = False  # Was the last micro-batch of the same run?
        self._others: list[int] = []  # Jobs of other threads and queries, which may compute the same rows.
        self._written = WrittenShuffles(status)
        self._thread = threading.current_thread()

    def __enter__(self) -> Jobs:
        self._thread = threading.current_thread()
        if self._status is not None:
            so_far = self._status.tag_jobs(self._tag)
            self._first_job_id = self._next_job_id = so_far.jobs
            self._before = range(self._status.looked_until, self._next_job_id)
            if self._stream is None or not self._before:  # No job of this transaction has run yet.
                self._status.looked_dropped_events = so_far.dropped_events
            self._follows_look = self._stream is not None and self._status.looked_run_id == self._stream.run_id
        else:
            self._session.addTag(self._tag)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over = True
        if self._status is not None:
            self._status.context.removeJobTag(self._tag)
            # The jobs of a broken attempt do not concern the next attempt.
            if kind is not None:
                seen = self._status.jobs_since(self._next_job_id, self._tag)
                self._next_job_id, self._status.looked_dropped_events = seen.so_far, seen.dropped_events
            self._status.looked_until = self._next_job_id
            self._status.looked_run_id = self._stream.run_id if self._stream is not None else None
        else:
            self._session.removeTag(self._tag)

    def cancel_soon(self) -> None:
        """Cancel the jobs of a broken transaction. Their tasks get no more leases, so their work is in vain."""
        time.sleep(CANCEL_AFTER_S)
        if self._is_over:
            return
        if self._status is not None:
            self._status.context.cancelJobsWithTag(self._tag)
        else:
            self._session.interruptTag(self._tag)

    def before_write(self, frame: Any) -> None:
        """Raises SinkError for a job that could neither be found nor cancelled, or whose stages cannot be seen."""
        thread = threading.current_thread()
        if thread is not self._thread:
            raise SinkError(
                f"transaction.write was called in thread {thread.name}, but the micro-batch runs in thread "
                f"{self._thread.name}: the sink could not see whether Spark runs a stage of such a write again, nor "
                "cancel it\n\nhint: call transaction.write in the thread that called your function, one write after "
                "another; one write with a column `topic` writes to several topics at the same time"
            )
        if self._status is None:
            self._shuffles.check(frame)

    def check(self) -> None:
        """Raises BatchBroken if Spark ran a stage of these jobs again, or does not know any more whether it did."""
        if self._status is None:
            return
        status, first = self._status, self._next_job_id
        seen = status.jobs_since(first, self._tag)
        if problem := find_dropped_events(seen.dropped_events - status.looked_dropped_events):
            raise BatchBroken(problem)
        new = range(first, seen.so_far)  # A job that another query starts during this check is checked the next time.
        if not new:
            return
        seen = when_settled(seen, lambda: status.jobs_since(first, self._tag), lambda seen: is_settled(seen, new))
        if problem := find_unknown_job(seen, new):
            raise BatchBroken(problem)
        if self._stream is not None:
            ids = self._stream.among(status, self._before)
            before = when_settled(status.jobs(ids), lambda: status.jobs(ids), have_ended) if ids else {}
            for job_id in ids:
                self._written.add(job_id, stages_that_ran_once(job_id, before.get(job_id), is_before=True))
            self._others += sorted(set(self._before).difference(ids))
        self._next_job_id, self._before = new.stop, range(0)
        ours = sorted(seen.ours.keys() & set(new))
        self._others += sorted(set(new).difference(ours))
        for job_id in ours:
            self._written.add(job_id, stages_that_ran_once(job_id, seen.ours[job_id]))
        if self._written.has_shuffle:
            self._others = self._look_at_others(status, self._others)
        self._written.check()

    def _look_at_others(self, status: SparkStatus, job_ids: Sequence[int]) -> list[int]:
        """Look at jobs without the tag, which the user's function may have started in another thread, with the frame
        of the micro-batch. Returns those that still run, to be looked at again."""
        running = []
        for job_id in reversed(job_ids):
            if job_id < self._first_job_id and self._is_before_batch(status, job_id):
                break
            job = status.jobs([job_id]).get(job_id)
            if job is None:
                raise BatchBroken(_forgotten_job(job_id))
            if job.is_running:
                running.append(job_id)
            ran = {stage_id: attempt for stage_id, attempt in job.attempts.items() if attempt != SKIPPED}
            self._written.add_other(job_id, ran)
        return running[::-1]

    def _is_before_batch(self, status: SparkStatus, job_id: int) -> bool:
        """Was this job, and so every earlier one, submitted before Spark planned the micro-batch? It has no rows of it.

        All later jobs were submitted after that, so a job that Spark has forgotten may have been too: BatchBroken. In
        the first micro-batch of a run such jobs are left out. A new run may repeat a micro-batch that was planned long
        ago, so even jobs that ran before the query was started are younger than the plan.
        """
        assert self._stream is not None, "there are no jobs before a plain frame"
        submitted_ms, planned_ms = status.submitted_ms(job_id), self._stream.planned_ms
        if submitted_ms is not None:
            return planned_ms is not None and submitted_ms < planned_ms
        if self._follows_look and planned_ms is not None:
            raise BatchBroken(_forgotten_job(job_id))
        return True


class MicroBatchJobs(NamedTuple):
    """The jobs of a micro-batch that run before the sink is called, and so without its tag.

    Spark 4.1 runs the shuffles of a stream there, and the user's function may run jobs. Spark gives all jobs of a query
    the run's id as their group, and a description that ends with the number of the micro-batch.
    """

    run_id: str
    batch_id: int
    planned_ms: int | None = None  # When Spark planned the micro-batch; None: not known.

    def among(self, status: SparkStatus, job_ids: range) -> list[int]:
        """Those that Spark still shows. The newest come last."""
        found = []
        in_group = {job_id for job_id in status.job_ids_of_group(self.run_id) if job_id in job_ids} if job_ids else ()
        for job_id in sorted(in_group, reverse=True):
            if not status.description(job_id).endswith(f"batch = {self.batch_id}"):
                break  # This job, and all earlier ones, belong to the previous micro-batch.
            found.append(job_id)
        return found[::-1]


def when_settled(seen: T, look: Callable[[], T], is_settled: Callable[[T], bool], lag_s: float = STATUS_LAG_S) -> T:
    """Looks again until all is settled. Spark shows a job a moment after its start, and its end a moment late too."""
    deadline = time.monotonic() + lag_s
    while not is_settled(seen) and time.monotonic() <= deadline:
        time.sleep(PAUSE_S)
        seen = look()
    return seen


def is_settled(seen: JobsSeen, job_ids: range) -> bool:
    """Does Spark show all of these jobs, and the end of ours?"""
    ours = {job_id: job for job_id, job in seen.ours.items() if job_id in job_ids}
    return find_unknown_job(seen, job_ids) is None and have_ended(ours)


def have_ended(jobs: Mapping[int, JobSeen]) -> bool:
    return not any(job.is_running for job in jobs.values())


def find_dropped_events(count: int) -> str | None:
    """count: those since the last look. Any of them may have said that a stage ran again, or an executor was lost."""
    if count == 0:
        return None
    return (
        f"Spark dropped {count:,} events of its jobs, so it is not known whether it ran a stage of the micro-batch "
        "again\n\nhint: a queue of Spark's driver was full. Start Spark with a larger "
        "spark.scheduler.listenerbus.eventqueue.appStatus.capacity (default: 10000, or "
        "spark.scheduler.listenerbus.eventqueue.capacity), or give the driver more cores"
    )


def find_unknown_job(seen: JobsSeen, job_ids: range) -> str | None:
    """The first of these jobs that Spark does not show. It may be one of ours."""
    for job_id in job_ids:
        if job_id not in seen.shown:
            return _forgotten_job(job_id)
    return None


def stages_that_ran_once(job_id: int, job: JobSeen | None, *, is_before: bool = False) -> list[int]:
    """The stages of a job. Raises BatchBroken if Spark ran one of them again, or may have.

    job: None if Spark does not show it.
    is_before: the job ended before the sink was called. Stages that it skipped may be forgotten: if the write reads
    their shuffles, they are stages of the write too.
    """
    if job is None:
        raise BatchBroken(_forgotten_job(job_id))
    if job.is_running:
        raise BatchBroken(f"Spark's status lags behind its jobs: it does not show the end of job {job_id}")
    stage_ids = []
    for stage_id, attempt in job.attempts.items():
        if attempt == SKIPPED and is_before:
            continue
        if attempt is None or attempt == SKIPPED:
            raise BatchBroken(_forgotten(job_id, stage_id))
        if attempt > 0:
            raise BatchBroken(
                f"Spark ran stage {stage_id} of the micro-batch again, which may give other rows than the first time"
            )
        stage_ids.append(stage_id)
    return stage_ids


def _forgotten_job(job_id: int) -> str:
    return (
        f"Spark does not show job {job_id}, so it is not known whether it ran a stage of it again"
        "\n\nhint: spark.ui.retainedJobs has to be larger than the number of jobs of all queries during one micro-batch"
    )


def _forgotten(job_id: int, stage_id: int) -> str:
    return (
        f"Spark does not show stage {stage_id} of job {job_id} any more, so it is not known whether it ran again"
        "\n\nhint: spark.ui.retainedStages has to be larger than the number of stages of a micro-batch"
    )


class WrittenShuffles:
    """The shuffles that a micro-batch reads, and who wrote them. Each stage is asked for once.

    If two stages wrote the same shuffle, its files were lost in between, all or some. What was computed from the first
    files, be it another shuffle or cached rows, does not fit what was computed from the second ones. The same is true
    of a stage that another job ran twice: its files come from two computations.
    """

    def __init__(self, status: Any) -> None:
        self._status = status
        self._stages: dict[int, Sequence[int]] = {}  # Of jobs whose stages were not asked for.
        self._other_attempts: dict[int, Mapping[int, int | None]] = {}  # Of other jobs: the attempts at their stages.
        self._jobs = 0
        self.has_shuffle = False
        self._read: set[int] = set()  # The RDDs of our stages, also of those that were skipped.
        self._writers: dict[int, dict[int, int]] = {}  # By the RDD that was written: stages, with their jobs.
        self._repeated: dict[int, tuple[int, int]] = {}  # By the RDD: stage and job.

    def add(self, job_id: int, stage_ids: Sequence[int]) -> None:
        """A job of the micro-batch, whose stages ran once."""
        self._stages[job_id] = stage_ids
        self._jobs += 1
        self.has_shuffle = self.has_shuffle or len(stage_ids) > 1

    def add_other(self, job_id: int, attempts: Mapping[int, int | None]) -> None:
        """A job that may have nothing to do with the micro-batch."""
        self._other_attempts[job_id] = attempts
        self._jobs += 1

    def check(self) -> None:
        """Raises BatchBroken if a shuffle of the micro-batch was written twice, or may have been."""
        if self._jobs < 2 or not self.has_shuffle:
            return
        asked, self._stages = self._stages, {}
        for job_id, stage_ids in asked.items():
            for stage_id in stage_ids:
                self._read.add(self._note(job_id, stage_id))
        others, self._other_attempts = self._other_attempts, {}
        for job_id, attempts in others.items():
            for stage_id, attempt in attempts.items():
                self._note_other(job_id, stage_id, attempt)
        for rdd_id in sorted(self._read & (self._writers.keys() | self._repeated.keys())):
            self._check_writers(rdd_id)

    def _note(self, job_id: int, stage_id: int) -> int:
        try:
            rdd_id, has_written = self._status.rdd_of_stage(stage_id)
        except LookupError:
            raise BatchBroken(_forgotten(job_id, stage_id)) from None
        if has_written:
            self._writers.setdefault(rdd_id, {}).setdefault(stage_id, job_id)
        return int(rdd_id)

    def _note_other(self, job_id: int, stage_id: int, attempt: int | None) -> None:
        if attempt is None:
            raise BatchBroken(_forgotten(job_id, stage_id))
        rdd_id = self._note(job_id, stage_id)
        if attempt > 0:
            self._repeated[rdd_id] = (stage_id, job_id)

    def _check_writers(self, rdd_id: int) -> None:
        (first_stage, first_job), *more = sorted(self._writers.get(rdd_id, {}).items()) or [self._repeated[rdd_id]]
        if more:
            stage_id, job_id = more[0]
            raise BatchBroken(
                f"Spark lost shuffle files that stage {first_stage} of job {first_job} wrote, and computed them again "
                f"in stage {stage_id} of job {job_id}, which may give other rows than the first time"
            )
        if rdd_id in self._repeated:
            raise BatchBroken(
                f"Spark ran stage {first_stage} of job {first_job} again, whose shuffle files the micro-batch reads: "
                "they may come from two computations"
            )
