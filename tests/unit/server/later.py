"""A worker thread that does not begin by itself: the jobs of a data folder wait until the test runs them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from fencepost.server.storage.syncing import Done


class Later:
    """For `DataFolder(defer=...)`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Done]] = []

    def __call__(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def run_one(self) -> None:
        """Do the work of the oldest job in another thread, then call `done` in this one."""
        work, done = self.jobs.pop(0)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except Exception as error:
                errors.append(error)

        thread = Thread(target=run)
        thread.start()
        thread.join()
        done(errors[0] if errors else None)

    def run(self) -> None:
        """Run all jobs, also those that they add."""
        while self.jobs:
            self.run_one()
