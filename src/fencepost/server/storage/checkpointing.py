"""Moves the recovery points: a log is made durable together with its indexes and snapshots, then its end is noted.

Recovery after a power loss checks only what lies past the recovery point. See `recovery.py`.
"""

from __future__ import annotations

from contextlib import suppress

from fencepost.machines.log.interface import LogTailUnknown
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.offset_files import RecoveryPoints
from fencepost.server.storage.syncing import Defer, NotOpened, Stop, sync_directory, sync_file


class Checkpointing:
    """One checkpoint at a time, for all logs of the folder `path` that want one when it begins."""

    def __init__(self, path: str, points: RecoveryPoints, defer: Defer, stop: Stop) -> None:
        self._path = path
        self._points = points
        self._defer = defer
        self._stop = stop
        self._wanted: dict[FileLog, None] = {}
        self._is_running = False
        self._is_file_old = False
        self._is_closed = False

    def add(self, log: FileLog) -> None:
        self._wanted[log] = None
        if not self._is_running:
            self._run()

    def log_deleted(self, log: FileLog | None) -> None:
        """Write the file again: a recovery point must not vouch for a later log of the same name."""
        if log is not None:
            self._wanted.pop(log, None)
        self._is_file_old = True
        if not self._is_running:
            self._run()

    def taken_over(self, old: FileLog, new: FileLog) -> None:
        """The files of `old` belong to `new`."""
        if old in self._wanted:
            del self._wanted[old]
            self._wanted[new] = None

    def close(self) -> None:
        self._is_closed = True

    def _run(self) -> None:
        logs, self._wanted = list(self._wanted), {}
        self._is_running = True
        self._is_file_old = False
        ends = [(log, log.end_offset, log.end_address) for log in logs]
        paths: list[str] = []
        directories: list[str] = []
        for log in logs:
            paths += log.files.to_sync()
            directories += [log.files.directory, self._path]

        def reached() -> dict[str, int]:
            return {log.files.name: end_offset for log, end_offset, _ in ends if not log.files.is_forgotten}

        def work() -> None:
            for path in paths:
                sync_file(path)
            for path in dict.fromkeys(directories):
                sync_directory(path)
            # On a full disk the old points still hold, and the next checkpoint tries again.
            with suppress(OSError):
                self._points.store(reached)

        def done(error: BaseException | None) -> None:
            self._is_running = False
            if error is not None and not isinstance(error, NotOpened):
                self._stop(LogTailUnknown(f"sync failed: {error}"))
                return
            # Where a file could not be opened the points stay; the log's next snapshot brings the next checkpoint.
            for log, end_offset, end_address in ends if error is None else ():
                files = log.files
                if not files.is_forgotten:
                    self._points.set(files.name, end_offset)
                    files.recovery_point = end_offset
                    files.recovery_address = end_address
                    files.synced_address = max(files.synced_address, end_address)
            if (self._wanted or self._is_file_old) and not self._is_closed:
                self._run()

        self._defer(work, done)
