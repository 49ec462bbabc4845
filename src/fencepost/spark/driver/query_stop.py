"""A query or job that is stopped in the middle of a transaction: how the sink notices it, and how it tells Spark."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.driver.job_failures import java_exception_of
from fencepost.spark.failures import QueryStopped

# Spark recognizes a stopped query by this text. It searches with a regular expression that overflows the stack on a
# text as long as the original message, which has a Java stack trace.
STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch: java.lang.InterruptedException"
INTERRUPTIONS = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
# The job of a query that was stopped, and a job of a group that was cancelled otherwise.
CANCELLED = re.compile(r"cancelled job group|cancelled .*\bQuery .*\[id = .*, runId = .*\] was stopped")
# PySpark does so at Ctrl-C, also for a write that runs in another thread than the one that is interrupted.
ALL_CANCELLED = "cancelled as part of cancellation of all jobs"
IN_THE_MIDDLE = "the query or job was stopped in the middle of a transaction, which is aborted"


def was_stopped(error: BaseException) -> bool:
    """Stopping a query interrupts its thread and cancels its job group. Either may be noticed first."""
    name, message = java_exception_of(error)
    return name.endswith(INTERRUPTIONS) or CANCELLED.search(message) is not None


def was_cancelled(error: BaseException) -> bool:
    """Somebody has cancelled the job on purpose. It is not run again, although its query may not have been stopped."""
    return was_stopped(error) or ALL_CANCELLED in java_exception_of(error)[1]


@contextmanager
def stop_recognized() -> Iterator[None]:
    """Around everything that the sink does for a transaction: an interruption is no failure, wherever it strikes."""
    try:
        yield
    except QueryStopped:
        raise
    except Exception as e:
        if not was_stopped(e):
            raise
        # Without the Spark exception: Spark recognizes a stopped query only in a short text.
        raise QueryStopped(f"{IN_THE_MIDDLE} ({STOPPED})") from None


@contextmanager
def stopped_by_sigterm(session: Any) -> Iterator[None]:
    """Spark Connect stops a query with SIGTERM to the process of its foreachBatch function. Abort before it ends."""
    is_ours = threading.current_thread() is threading.main_thread() and not has_gateway(session)
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> None:
        # When its client disconnects, Spark Connect sends a second SIGTERM. The process ends by itself after the abort.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise QueryStopped(IN_THE_MIDDLE)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
