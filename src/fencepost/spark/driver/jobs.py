"""The Spark jobs of one attempt at a micro-batch: they can be cancelled, and asked whether a stage ran twice.

Within one job, Spark numbers the attempts at a stage. If a job finds that shuffle files of an earlier job are lost, it
repeats a part of the stages that wrote them, as new stages. With Spark's adaptive execution, each shuffle is a job of
its own. `connect_shuffles.py` does for Spark Connect what can be done there.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.spark.driver.connect_shuffles import ConnectShuffles
from fencepost.spark.driver.spark_status import SparkStatus
from fencepost.spark.failures import BatchBroken, SinkError

# Spark reports a failed task in less time than this. A cancelled job says only that it was cancelled, so the sink waits
# for the better message.
CANCEL_AFTER_S = 1.0
STATUS_LAG_S = 10.0
PAUSE_S = 0.005
# A stage that reads a shuffle and writes another is the second of three, or a later one.
STAGES_WITH_TWO_SHUFFLES = 3


class Jobs:
    """All jobs that are started in a `with` block, by the thread that runs it: Spark tags the jobs of a thread.

    status: None with Spark Connect.
    run_id: of the query. Spark 4.1 runs the shuffles of a stream before it calls the sink, and so without our tag.
    """

    def __init__(
        self, session: Any, status: SparkStatus | None, shuffles: ConnectShuffles, run_id: str | None = None
    ) -> None:
        self._session = session
        self._status = status
        self._shuffles = shuffles
        self._run_id = run_id
        self._context = status.context if status is not None else None
        self._tag = f"fencepost-{uuid.uuid4().hex}"
        self._is_over = False
        self._next_job_id = 0  # The first job that was not looked at.
        self._before = range(0)  # The jobs between the last micro-batch and this one, of whatever query.
        self._stages: dict[int, Sequence[int]] = {}  # Of the jobs that were looked at.
        self._thread = threading.current_thread()

    def __enter__(self) -> Jobs:
        self._thread = threading.current_thread()
        if self._status is not None:
            self._next_job_id = self._status.jobs_so_far()
            self._before = range(self._status.looked_until, self._next_job_id)
            self._status.context.addJobTag(self._tag)
        else:
            self._session.addTag(self._tag)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over = True
        if self._status is not None:
            self._status.context.removeJobTag(self._tag)
            # What a broken attempt did is of no interest to the next one.
            self._status.looked_until = self._next_job_id if kind is None else self._status.jobs_so_far()
        else:
            self._session.removeTag(self._tag)

    def cancel_soon(self) -> None:
        """Cancel the jobs of a broken transaction. Their tasks get no more leases, so their work is in vain."""
        time.sleep(CANCEL_AFTER_S)
        if self._is_over:
            return
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)
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
        until = self._status.jobs_so_far()
        if until == self._next_job_id:
            return  # All jobs were looked at.
        new = range(self._next_job_id, until)
        problem = find_unknown_job(self._status, new)
        ours = set(self._status.job_ids(self._tag)) if problem is None else set()
        # The others may have been ours, if Spark has forgotten them in the meantime.
        problem = problem or find_unknown_job(self._status, sorted(set(new) - ours), lag_s=0)
        if problem is not None:
            raise BatchBroken(problem)
        if self._before and self._run_id is not None:
            ours |= {job_id for job_id in self._status.job_ids_of_group(self._run_id) if job_id in self._before}
        self._next_job_id, self._before = until, range(0)
        for job_id in sorted(ours - self._stages.keys()):
            self._stages[job_id] = stages_that_ran_once(self._status, job_id)
        if problem := find_repeated_shuffle(self._status, self._stages):
            raise BatchBroken(problem)


def find_unknown_job(tracker: Any, job_ids: Iterable[int], lag_s: float = STATUS_LAG_S) -> str | None:
    """The first of these jobs that Spark does not show. It shows a job a moment after its start.

    All jobs are asked for, because a job that is not shown does not say whether it is one of ours.
    """
    deadline = time.monotonic() + lag_s
    for job_id in job_ids:
        while tracker.getJobInfo(job_id) is None:
            if time.monotonic() > deadline:
                return (
                    f"Spark does not show job {job_id}, so it is not known whether it ran a stage of it again"
                    "\n\nhint: spark.ui.retainedJobs has to be larger than the number of jobs during one write"
                )
            time.sleep(PAUSE_S)
    return None


def stages_that_ran_once(tracker: Any, job_id: int, lag_s: float = STATUS_LAG_S) -> list[int]:
    """The stages of a job. Raises BatchBroken if Spark ran one of them again, or may have."""
    job = _ended_job(tracker, job_id, lag_s)
    if job is None:
        raise BatchBroken(
            f"Spark does not show job {job_id} any more, so it is not known whether it ran a stage of it again"
        )
    if job.status == "RUNNING":
        raise BatchBroken(f"Spark's status lags behind its jobs: it does not show the end of job {job_id}")
    stage_ids: list[int] = job.stageIds
    for stage_id in stage_ids:
        stage = tracker.getStageInfo(stage_id)
        if stage is None:
            raise BatchBroken(
                f"Spark does not show stage {stage_id} of job {job_id} any more, so it is not known whether it ran "
                "again\n\nhint: spark.ui.retainedStages has to be larger than the number of stages of a micro-batch"
            )
        if stage.currentAttemptId > 0:
            raise BatchBroken(
                f"Spark ran stage {stage_id} of the micro-batch again, which may give other rows than the first time"
            )
    return stage_ids


def find_repeated_shuffle(tracker: Any, stages: Mapping[int, Sequence[int]]) -> str | None:
    """A shuffle that two of these jobs wrote. Its files were lost in between, all or some. None: there is none.

    With one shuffle only, that does no harm: no other files were made from the lost ones.
    """
    if len(stages) < 2 or all(len(ids) < STAGES_WITH_TWO_SHUFFLES for ids in stages.values()):
        return None
    writers: dict[int, tuple[int, int]] = {}
    for job_id, stage_ids in stages.items():
        for stage_id in stage_ids:
            rdd_id = tracker.rdd_of_shuffle(stage_id)
            if rdd_id is None:
                continue
            first_job, first_stage = writers.setdefault(rdd_id, (job_id, stage_id))
            if first_stage != stage_id:
                return (
                    f"Spark lost shuffle files that stage {first_stage} of job {first_job} wrote, and computed them "
                    f"again in stage {stage_id} of job {job_id}, which may give other rows than the first time"
                )
    return None


def _ended_job(tracker: Any, job_id: int, lag_s: float) -> Any:
    """The status of a job that has ended. Spark updates it a moment later, and that of the stages before."""
    deadline = time.monotonic() + lag_s
    while True:
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING" or time.monotonic() > deadline:
            return job
        time.sleep(PAUSE_S)
