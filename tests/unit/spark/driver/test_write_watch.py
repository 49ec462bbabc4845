"""The writes of a transaction and the checks around them: what failed stays failed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.cached_rows import CachedRows
from fencepost.spark.driver.connect_shuffles import ConnectShuffles
from fencepost.spark.driver.jobs import Jobs
from fencepost.spark.driver.write_watch import WriteWatch
from fencepost.spark.failures import SinkError


def connect_jobs() -> Jobs:
    """As with Spark Connect."""
    conf = SimpleNamespace(get=lambda name, default=None: default)
    session: Any = SimpleNamespace(addTag=lambda tag: None, removeTag=lambda tag: None, conf=conf)
    return Jobs(session, None, ConnectShuffles(session, None, is_stateful=False))


FRAME = SimpleNamespace(_explain_string=lambda: "FileScan text [value#1]")


def test_a_write_in_another_thread_is_refused_and_ends_the_attempt_though_the_function_hides_it() -> None:
    written = []

    def write(watch: WriteWatch) -> None:
        with watch.around(FRAME):
            written.append(FRAME)

    with connect_jobs() as jobs, ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        watch = WriteWatch(jobs, CachedRows(None))
        write(watch)
        refused = pool.submit(write, watch).exception()
        assert isinstance(refused, SinkError)
        assert "in thread pool_0, but the micro-batch runs in thread " + threading.current_thread().name in str(refused)
        assert "hint: call transaction.write in the thread that called your function" in str(refused)
        assert len(written) == 1
        with pytest.raises(SinkError, match="pool_0"):
            watch.raise_hidden()


def test_whatever_a_write_raised_is_raised_again_though_the_function_hides_it() -> None:
    with connect_jobs() as jobs:
        watch = WriteWatch(jobs, CachedRows(None))
        with suppress(KeyError), watch.around(FRAME):
            raise KeyError("no such topic")
        with watch.around(FRAME):
            pass
        with pytest.raises(KeyError, match="no such topic"):
            watch.raise_hidden()


def test_a_refusal_of_compute_once_is_raised_again_though_the_function_hides_it() -> None:
    conf = SimpleNamespace(get=lambda name, default: "true" if name == "spark.speculation" else default)
    frame = SimpleNamespace(sparkSession=SimpleNamespace(conf=conf), **vars(FRAME))
    nothing: Any = None
    with connect_jobs() as jobs:
        watch = WriteWatch(jobs, CachedRows(None))
        transaction = BatchTransaction(0, None, nothing, nothing, nothing, watch.around)
        with suppress(SinkError):
            transaction.compute_once(frame)
        with pytest.raises(SinkError, match=r"needs spark\.speculation=false"):
            watch.raise_hidden()


def test_writes_in_the_thread_of_the_micro_batch_are_no_problem() -> None:
    with connect_jobs() as jobs:
        watch = WriteWatch(jobs, CachedRows(None))
        for _ in range(2):
            with watch.around(FRAME):
                pass
        watch.raise_hidden()
        watch.finish()
