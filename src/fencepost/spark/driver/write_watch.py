"""Checks around every write of a transaction: whatever makes the outputs doubtful ends the attempt.

An exception of a write or of its checks is raised again at the end of the user's function, because the function may
have caught it, and the outputs would not be complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.spark.driver.cached_rows import CachedRows
from fencepost.spark.driver.jobs import Jobs


class WriteWatch:
    def __init__(self, jobs: Jobs, cached: CachedRows) -> None:
        self._jobs = jobs
        self._cached = cached
        self._problem: BaseException | None = None

    @contextmanager
    def around(self, frame: Any) -> Iterator[None]:
        """Wraps the write of a frame."""
        try:
            # The jobs of the write before, as long as Spark knows them. Those of the last write are checked while the
            # offsets are committed: Spark shows the end of a job a moment later.
            self._jobs.check()
            self._jobs.before_write(frame)
            self._cached.before_write(frame)
            yield
            self._cached.look()
        except BaseException as e:
            self._problem = self._problem or e
            raise

    def raise_hidden(self) -> None:
        """When the user's function has ended as if all were well."""
        if self._problem is not None:
            raise self._problem

    def finish(self) -> None:
        """Before the commit."""
        self._jobs.check()
        # After the stages: their end is known, so everything that happened during their run is known too.
        self._cached.finish()
