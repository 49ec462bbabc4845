"""The Spark jobs of a batch: what they said when they failed, cancelling them, and how long they take."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost import __version__
from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.driver.progress import name_of
from fencepost.spark.failures import QueryStopped

log = logging.getLogger("fencepost.spark")

WARN_AT = (0.5, 0.8)
# Spark reports a failed task in less time than this; a job that we cancel says only that it was cancelled.
CANCEL_AFTER_S = 1.0
STATUS_LAG_S = 10.0
# By this text Spark tells a query that was stopped from one that failed. It looks for it with a regular expression that
# overflows the stack on a text as long as the Java stack trace that comes with the real one.
STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch: java.lang.InterruptedException"

# Out of the traceback of a worker, which is all text.
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(fencepost|crc32c|cramjam|numpy|pyarrow)[.']")
_OTHER_VERSION = re.compile(
    r"ModuleNotFoundError: No module named 'fencepost\.[^\n]*"
    r"|ImportError: cannot import name [^\n]* from 'fencepost\.[^\n]*"
    r"|AttributeError: Can't get attribute [^\n]* on <module 'fencepost\.[^\n]*"
)
_UNREACHABLE = re.compile(r"lease\.client\.DriverUnreachable: ([^\n]*\n\nhint: [^\n]*)")
_EXCEPTION_LINE = re.compile(r"^[A-Za-z_][\w.]*: .*", re.MULTILINE)
_JAVA_TRACE = re.compile(r"JVM stacktrace|^\s+at [\w.$]+\(", re.MULTILINE)


def of_java(error: BaseException) -> tuple[str, str]:
    """The class and message of a Java exception that came out of Spark; empty for any other."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return str(java.getClass().getName()), str(java.getMessage() or "")
    if type(error).__module__ == "pyspark.errors.exceptions.connect" and type(error).__name__ == "SparkException":
        return "org.apache.spark.SparkException", str(error)
    return "", ""


def was_stopped(error: BaseException) -> bool:
    """Stopping a query interrupts its thread and cancels its job group, whichever is noticed first."""
    name, message = of_java(error)
    return name.endswith(("InterruptedException", "ClosedByInterruptException")) or "cancelled job group" in message


def is_lost_worker(error: BaseException) -> bool:
    """A job that failed although no code threw anything: a worker or an executor died."""
    name, message = of_java(error)
    return name == "org.apache.spark.SparkException" and "Job aborted due to stage failure" in message


def setup_problem(error: BaseException) -> str | None:
    """What is wrong with the cluster rather than with the batch, said in one line: no attempt would do better."""
    text = _without_java_trace(str(error))
    if found := _OTHER_VERSION.search(text):
        return (
            f"the Python workers on the executors have another version of fencepost than the driver, which has "
            f"{__version__} ({found[0]})\n\nhint: install the same version everywhere, and restart the executors"
        )
    if found := _NO_MODULE.search(text):
        return (
            f"the Python workers on the executors cannot import {found[1]}, which the sink's tasks need"
            "\n\nhint: install fencepost[spark] for the workers (spark.pyspark.python), or ship it with "
            "the job: a copy of its wheel, renamed to .zip, by spark.submit.pyFiles, --py-files or addArtifacts(..., "
            "pyfile=True); where numpy, pyarrow, crc32c and cramjam are missing as well, a packed environment by "
            "spark.archives"
        )
    if found := _UNREACHABLE.search(text):
        return found[1]
    return None


@contextmanager
def stopped_by_sigterm(session: Any) -> Iterator[None]:
    """Spark Connect stops a query by ending the process that runs its foreachBatch function: time to abort first."""
    is_ours = threading.current_thread() is threading.main_thread() and not has_gateway(session)
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> None:
        # A client that leaves sends a second one. This process ends by itself, once the batch is aborted.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise QueryStopped("the query was stopped in the middle of a batch, which is aborted")

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def sentence_of(error: BaseException) -> str:
    """The one line of a Spark error that says what was wrong."""
    _, message = of_java(error)
    if message:
        return message.partition("\n")[0]
    text = _without_java_trace(str(error)).strip()
    found = _EXCEPTION_LINE.findall(text)
    return str(found[-1]) if found else text.partition("\n")[0]


def _without_java_trace(text: str) -> str:
    found = _JAVA_TRACE.search(text)
    return text[: found.start()] if found else text


class Jobs:
    """The Spark jobs of one attempt: can be cancelled, and asked whether a stage ran twice."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._context = session.sparkContext if has_gateway(session) else None
        self._tag = f"fencepost-{uuid.uuid4().hex}"
        self._is_over = False

    def __enter__(self) -> Jobs:
        if self._context is not None:
            self._context.addJobTag(self._tag)
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
        """No task can get a lease any more; this saves the work that they would do before they hear of it."""
        time.sleep(CANCEL_AFTER_S)
        if self._is_over:
            return
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)
        else:
            self._session.interruptTag(self._tag)

    def _job_ids(self) -> list[int]:
        assert self._context is not None
        # PySpark's own tracker knows groups only, and a plain write has none.
        return list(self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag))

    def was_a_stage_repeated(self) -> bool:
        """Not known with Spark Connect. Spark itself fails a job there whose input it knows to come out differently."""
        if self._context is None:
            return False
        tracker = self._context.statusTracker()
        for job_id in self._job_ids():
            job = _ended_job(tracker, job_id)
            if job is not None and job.status == "RUNNING":
                log.warning("Spark's status lags behind its jobs: it does not know of the end of job %d", job_id)
                return True  # For all that anybody can tell.
            for stage_id in job.stageIds if job else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.currentAttemptId > 0:
                    return True
        return False


def _ended_job(tracker: Any, job_id: int) -> Any:
    """What is known of a job that is over. Spark hears of it later than we do, and of its stages in between."""
    deadline = time.monotonic() + STATUS_LAG_S
    while True:
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING" or time.monotonic() > deadline:
            return job
        time.sleep(0.005)


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
            "%s has used %d %% of transaction.timeout.ms=%d; at 100 %% the broker aborts it. Raise the setting "
            "(up to the broker's transaction.max.timeout.ms), or make batches smaller (maxOffsetsPerTrigger)",
            name_of(batch_id),
            share * 100,
            timeout_ms,
        )
