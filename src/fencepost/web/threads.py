"""Threads for questions that block. They do not keep the process alive.

A cluster that does not answer must not delay Ctrl-C, so `concurrent.futures.ThreadPoolExecutor`, whose threads the
interpreter waits for, does not fit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    def __init__(self, at_most: int, name: str) -> None:
        self._at_most = at_most
        self._name = name
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as e:
                future.set_exception(e)

        self._work.put(run)
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._count < self._at_most:
                self._count += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._count}", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            work: Any = self._work.get()
            work()
            del work  # Nothing of the last question stays in memory.
            self._idle.release()
