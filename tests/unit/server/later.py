"""A thread that is slow to begin: what storage hands to it waits until a test says so."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.server.storage.folder import Done


class Later:
    """For `DataFolder(defer=...)`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Done]] = []

    def __call__(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def run(self) -> None:
        """Also what comes of it."""
        while self.jobs:
            work, done = self.jobs.pop(0)
            work()
            done(None)
