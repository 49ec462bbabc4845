"""Syncs of logs, in another thread: for commits that wait for them, and to move the recovery points.

Group commit is one sync to disk for all callers that wait for it. A caller that comes meanwhile waits for the next.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from fencepost.machines.log.interface import LogTailUnknown
from fencepost.server.storage.checkpoints import TOPIC_ID_NAME
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.offset_files import RecoveryPoints
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.segment import Segment
from fencepost.server.storage.syncing import Defer, FolderSync, NotOpened, Stop, sync_directory, sync_file

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class GroupSync:
    """Syncs logs of the folder `path`."""

    def __init__(self, path: str, open_files: OpenFiles, disk: FolderSync, defer: Defer, stop: Stop) -> None:
        self._path = path
        self._open_files = open_files
        self._disk = disk
        self._defer = defer
        self._stop = stop
        self._is_syncing = False
        self._is_closed = False
        # The callers that wait for the next sync, and the logs that they want in it.
        self._waiting: list[Callable[[], None]] = []
        self._wanted: dict[FileLog, None] = {}

    def add(self, logs: Iterable[FileLog], then: Callable[[], None]) -> None:
        """Call `then` once everything appended to `logs` so far is on disk."""
        self._wanted.update(dict.fromkeys(logs))
        self._waiting.append(then)
        if not self._is_syncing:
            self._sync()

    def taken_over(self, old: FileLog, new: FileLog) -> None:
        """The files of `old` belong to `new`: a sync that waits must sync them all the same."""
        if old in self._wanted:
            del self._wanted[old]
            self._wanted[new] = None

    def close(self) -> list[Callable[[], None]]:
        """Begin no further sync; return the callbacks of the waiting callers."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        return waiting

    def _sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        wanted, self._wanted = self._wanted, {}
        self._is_syncing = True
        ends = [(log, log.end_address) for log in wanted]
        fds: list[int] = []
        directories: list[int] = []
        try:
            self._open_all([log for log in wanted if not log.files.is_forgotten], fds, directories)
        except OSError as error:
            for fd in fds + directories:
                os.close(fd)
            self._stop(LogTailUnknown(f"cannot sync: {error}"))
            return

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._stop(LogTailUnknown(f"sync failed: {error}"))
                return
            for log, end_address in ends:
                log.files.synced_address = max(log.files.synced_address, end_address)
            self._answer(waiting)

        self._defer(lambda: self._disk.sync_group(fds, directories), done)

    def _answer(self, waiting: list[Callable[[], None]]) -> None:
        is_tail_known = True
        try:
            call_all(waiting)
        except LogTailUnknown as unknown:
            is_tail_known = False
            self._stop(unknown)
        finally:
            # After an unknown tail no sync may begin, and so no caller is answered any more.
            self._is_syncing = not is_tail_known
            if is_tail_known and self._waiting and not self._is_closed:
                self._sync()

    def _open_all(self, logs: list[FileLog], fds: list[int], directories: list[int]) -> None:
        changed: dict[str, None] = {}
        for log in logs:
            files = log.files
            for segment in files.segments.past(files.synced_address):
                self._open(segment, fds)
            # The names of new files count as synced from now.
            if files.directory_changed:
                files.directory_changed = False
                changed[files.directory] = None
            if files.directory_created:
                files.directory_created = False
                changed[self._path] = None
                # After a power loss, half of it could pass for the id of a deleted topic, whose log is removed.
                self._open_path(f"{files.directory}/{TOPIC_ID_NAME}", fds, fds, directories)
        for path in changed:
            self._open_path(path, directories, fds, directories)

    def _open(self, segment: Segment, fds: list[int]) -> None:
        try:
            fds.append(self._open_files.duplicate(segment))
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            # Too few descriptors are left to hand all files to the other thread, so this thread syncs them.
            self._disk.sync_group(fds, [])
            fds.clear()
            os.fdatasync(self._open_files.open(segment))
            self._open_files.close(segment)

    def _open_path(self, path: str, opened: list[int], fds: list[int], directories: list[int]) -> None:
        """Add the descriptor of a small file or a directory to `opened`, which is one of the other two lists."""
        try:
            opened.append(self._open_files.open_path(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            self._disk.sync_group(fds, directories)
            fds.clear()
            directories.clear()
            opened.append(self._open_files.open_path(path))


def call_all(callbacks: list[Callable[[], None]]) -> None:
    """Call each of them, whatever the others raise. Only LogTailUnknown ends it: nothing may be done after that."""
    failed: list[Exception] = []
    for callback in callbacks:
        try:
            callback()
        except LogTailUnknown:
            raise
        except Exception as error:
            failed.append(error)
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("after a sync", failed)


class Checkpointing:
    """Moves the recovery points: a log is made durable with its indexes and snapshots, then its end is noted.

    Recovery after a power loss checks only what lies past the recovery point. See `recovery.py`.

    One checkpoint at a time, for all logs of the folder `path` that want one when it begins.
    """

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
