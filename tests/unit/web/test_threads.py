"""Threads for questions that block."""

from __future__ import annotations

import threading

import pytest

from fencepost.web.threads import DaemonThreads

SOON_S = 30.0


def test_work_is_done_by_at_most_so_many_threads_and_its_errors_are_raised() -> None:
    threads = DaemonThreads(2, "test")
    gate = threading.Event()
    names = [threads.submit(lambda: gate.wait() and threading.current_thread().name) for _ in range(6)]
    gate.set()
    found = {future.result(SOON_S) for future in names}
    assert found <= {"test-1", "test-2"}
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(SOON_S)
    assert threads.submit(threading.current_thread).result(SOON_S).daemon
