"""Cleaned segments that are being synced and swapped in. Once the folder is closed, no swap is committed."""

from __future__ import annotations

from threading import Lock

from fencepost.machines.log.interface import LogTailUnknown
from fencepost.server.storage.deferring import Defer, Done, Stop
from fencepost.server.storage.rewriting import FileRewrite


class Swaps:
    def __init__(self, defer: Defer, stop: Stop) -> None:
        self._defer = defer
        self._stop = stop
        self._running: dict[FileRewrite, None] = {}
        self._lock = Lock()
        self._is_closed = False

    def begin(self, rewrite: FileRewrite, done: Done) -> None:
        """Call `rewrite.commit()` in another thread, then `done` in this one."""
        self._running[rewrite] = None

        def work() -> None:
            with self._lock:
                if not self._is_closed:
                    rewrite.commit()

        def committed(error: BaseException | None) -> None:
            if rewrite not in self._running:
                return  # The folder was closed meanwhile.
            del self._running[rewrite]
            try:
                done(error)
            except OSError as error:
                self._stop(LogTailUnknown(f"a cleaned segment cannot take its place: {error}"))

        self._defer(work, committed)

    def close(self) -> None:
        """Returns when no commit is under way, and none will be."""
        with self._lock:
            self._is_closed = True

    def abandon(self) -> None:
        self._is_closed = True

    def install(self) -> set[str]:
        """Put the cleaned segments that are on disk in their place; return the logs in which that failed."""
        running, self._running = self._running, {}
        failed = set()
        for rewrite in running:
            try:
                if rewrite.is_committed:
                    rewrite.install()
            except OSError:
                failed.add(rewrite.log_name)
        return failed
