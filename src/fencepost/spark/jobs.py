"""The Spark jobs of a batch: what they said when they failed, cancelling them, and how long they take."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any

from fencepost.spark import checkpoint

log = logging.getLogger("fencepost.spark")

WARN_AT = (0.5, 0.8)
# Spark reports a failed task in less time than this; a job that we cancel says only that it was cancelled.
CANCEL_AFTER_S = 1.0
# By this text Spark tells a query that was stopped from one that failed. It looks for it with a regular expression that
# overflows the stack on a text as long as the Java stack trace that comes with the real one.
STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch: java.lang.InterruptedException"


def of_java(error: BaseException) -> tuple[str, str]:
    """The class and message of a Java exception that came out of Spark; empty for any other."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return "", ""
    return str(java.getClass().getName()), str(java.getMessage() or "")


def was_stopped(error: BaseException) -> bool:
    """Stopping a query interrupts its thread and cancels its job group, whichever is noticed first."""
    name, message = of_java(error)
    return name.endswith(("InterruptedException", "ClosedByInterruptException")) or "cancelled job group" in message


def is_lost_worker(error: BaseException) -> bool:
    """A job that failed although no code threw anything: a worker or an executor died."""
    name, message = of_java(error)
    return name == "org.apache.spark.SparkException" and "Job aborted due to stage failure" in message


def sentence_of(error: BaseException) -> str:
    """The one line of a Spark error that says what was wrong."""
    _, message = of_java(error)
    if message:
        return message.partition("\n")[0]
    lines = str(error).partition("JVM stacktrace")[0].strip().splitlines()
    return lines[-1].strip() if lines else ""


class Jobs:
    """The Spark jobs of one attempt: can be cancelled, and asked whether a stage ran twice."""

    def __init__(self, session: Any) -> None:
        self._context = session.sparkContext if checkpoint.has_gateway(session) else None
        self._tag = f"fencepost-{uuid.uuid4().hex}"
        self._is_over = False

    def __enter__(self) -> Jobs:
        if self._context is not None:
            self._context.addJobTag(self._tag)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._context is not None:
            self._context.removeJobTag(self._tag)

    def cancel_soon(self) -> None:
        """No task can get a lease any more; this saves the work that they would do before they hear of it."""
        time.sleep(CANCEL_AFTER_S)
        if self._context is not None and not self._is_over:
            self._context.cancelJobsWithTag(self._tag)

    def _job_ids(self) -> list[int]:
        assert self._context is not None
        # PySpark's own tracker knows groups only, and a plain write has none.
        return list(self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag))

    def was_a_stage_repeated(self) -> bool:
        if self._context is None:
            return False
        tracker = self._context.statusTracker()
        for job_id in self._job_ids():
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.currentAttemptId > 0:
                    return True
        return False


class TimeoutAlarm:
    """Warns while a batch uses up its transaction's time."""

    def __init__(self, batch_id: int, timeout_ms: int) -> None:
        self._timers = [
            threading.Timer(timeout_ms * share / 1000, self._warn, (batch_id, timeout_ms, share)) for share in WARN_AT
        ]

    def __enter__(self) -> TimeoutAlarm:
        for timer in self._timers:
            timer.daemon = True
            timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    @staticmethod
    def _warn(batch_id: int, timeout_ms: int, share: float) -> None:
        log.warning(
            "batch %d has used %d %% of transaction.timeout.ms=%d; at 100 %% the broker aborts it. Raise the setting "
            "(up to the broker's transaction.max.timeout.ms), or make batches smaller (maxOffsetsPerTrigger)",
            batch_id,
            share * 100,
            timeout_ms,
        )
