"""Checks around every write of a transaction: whatever makes the outputs doubtful ends the attempt.

A check that failed is raised again before the commit, in case the user's function has hidden it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.spark.driver.cached_rows import CachedRows
from fencepost.spark.driver.jobs import Jobs
from fencepost.spark.failures import SinkError


class WriteWatch:
    def __init__(self, jobs: Jobs, cached: CachedRows) -> None:
        self._jobs = jobs
        self._cached = cached
        self._problem: SinkError | None = None

    @contextmanager
    def around(self, frame: Any) -> Iterator[None]:
        """Wraps the write of a frame."""
        with self._remembered():
            # The jobs of the write before, as long as Spark knows them. Those of the last write are checked while the
            # offsets are committed: Spark shows the end of a job a moment later.
            self._jobs.check()
            self._jobs.before_write(frame)
            self._cached.before_write(frame)
        yield
        with self._remembered():
            self._cached.look()

    def finish(self) -> None:
        """Before the commit."""
        if self._problem is not None:
            raise self._problem
        self._jobs.check()
        # After the stages: their end is known, so everything that happened during their run is known too.
        self._cached.finish()

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        try:
            yield
        except SinkError as e:
            self._problem = e
            raise
