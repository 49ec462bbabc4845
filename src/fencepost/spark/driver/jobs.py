"""The Spark jobs of one attempt at a micro-batch: they can be cancelled, and asked whether a stage ran twice.

Spark Connect shows neither jobs nor stages. There the sink refuses to write a frame behind a shuffle, unless Spark
itself gives up such a job instead of running a stage again (`spark.stage.maxConsecutiveAttempts=1`). A write without a
shuffle has one stage only, and the lease service notices if Spark runs that one again.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any

from fencepost.spark.driver.spark_status import SparkStatus
from fencepost.spark.failures import BatchBroken, SinkError

# Spark reports a failed task in less time than this. A cancelled job says only that it was cancelled, so the sink waits
# for the better message.
CANCEL_AFTER_S = 1.0
STATUS_LAG_S = 10.0
PAUSE_S = 0.005
# In the text of `DataFrame.explain`.
SHUFFLE = re.compile(r"(?<!Broadcast)Exchange ")
MAX_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"


class Jobs:
    """All jobs that are started in a `with` block, by the thread that runs it: Spark tags the jobs of a thread.

    status: None with Spark Connect.
    """

    def __init__(self, session: Any, status: SparkStatus | None, *, is_stateful: bool = False) -> None:
        self._session = session
        self._status = status
        self._is_stateful = is_stateful
        self._context = status.context if status is not None else None
        self._tag = f"fencepost-{uuid.uuid4().hex}"
        self._is_over = False
        self._next_job_id = 0  # The first job that was not looked at.
        self._checked: set[int] = set()
        self._thread = threading.current_thread()

    def __enter__(self) -> Jobs:
        self._thread = threading.current_thread()
        if self._status is not None:
            self._next_job_id = self._status.jobs_so_far()
            self._status.context.addJobTag(self._tag)
        else:
            self._session.addTag(self._tag)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._context is not None:
            self._context.removeJobTag(self._tag)
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
        if self._context is None:
            may_shuffle = self._is_stateful or SHUFFLE.search(frame._explain_string()) is not None
            check_connect(may_shuffle, self._session.conf.get(MAX_ATTEMPTS, None))

    def check(self) -> None:
        """Raises BatchBroken if Spark ran a stage of these jobs again, or does not know any more whether it did."""
        if self._status is None:
            return
        until = self._status.jobs_so_far()
        if until == self._next_job_id:
            return  # All jobs were looked at.
        problem = find_unknown_job(self._status, range(self._next_job_id, until))
        self._next_job_id = until
        for job_id in set(self._status.job_ids(self._tag)) - self._checked if problem is None else ():
            problem = problem or find_repeated_stage(self._status, job_id)
            self._checked.add(job_id)
        if problem is not None:
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


def find_repeated_stage(tracker: Any, job_id: int, lag_s: float = STATUS_LAG_S) -> str | None:
    """A stage of a job that Spark ran again, or may have; None if each ran once."""
    job = _ended_job(tracker, job_id, lag_s)
    if job is None:
        return f"Spark does not show job {job_id} any more, so it is not known whether it ran a stage of it again"
    if job.status == "RUNNING":
        return f"Spark's status lags behind its jobs: it does not show the end of job {job_id}"
    for stage_id in job.stageIds:
        stage = tracker.getStageInfo(stage_id)
        if stage is None:
            return (
                f"Spark does not show stage {stage_id} of job {job_id} any more, so it is not known whether it ran "
                "again\n\nhint: spark.ui.retainedStages has to be larger than the number of stages of a micro-batch"
            )
        if stage.currentAttemptId > 0:
            return f"Spark ran stage {stage_id} of the micro-batch again, which may give other rows than the first time"
    return None


def _ended_job(tracker: Any, job_id: int, lag_s: float) -> Any:
    """The status of a job that has ended. Spark updates it a moment later, and that of the stages before."""
    deadline = time.monotonic() + lag_s
    while True:
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING" or time.monotonic() > deadline:
            return job
        time.sleep(PAUSE_S)


def check_connect(may_shuffle: bool, max_attempts: str | None) -> None:
    """Raises SinkError for a frame behind a shuffle, unless Spark gives up a job instead of running a stage again."""
    if may_shuffle and max_attempts != "1":
        raise SinkError(
            f"the rows to write come from a shuffle, and {MAX_ATTEMPTS} is {max_attempts or 'not set'}, expected 1: "
            "with Spark Connect the sink cannot see whether Spark runs a stage again, perhaps with other rows, after "
            f"some were written\n\nhint: start the Spark Connect server with {MAX_ATTEMPTS}=1, so that Spark gives up "
            "such a job, and the sink runs the micro-batch again"
        )
