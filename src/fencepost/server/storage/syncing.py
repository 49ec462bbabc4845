"""Waiting for the disk: fsync of files and directories, one by one or a whole file system at once.

A group of commits touches many files, and every fdatasync costs its own round trip to the disk. Linux can sync a whole
file system with one call, which takes about as long as two files. But that call also waits for the writes of other
programs, so after a slow one the files are synced one by one for a while.

Slow work, such as fsync and the removal of files, is done in another thread: `defer(work, done)` calls `work()` there,
and then `done(error)` in the thread of the event loop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from fencepost.machines.log.interface import LogTailUnknown

_AT_LEAST_FILES = 3
_SLOW_S = 0.050
_SLOW_GROUPS = 200
_THREADS = 8


class NotOpened(OSError):
    """A file could not be opened for its sync, perhaps because no descriptor was left. No write is known to be lost."""


def sync_file(path: str) -> None:
    """fdatasync by name; does nothing if there is no such file."""
    fd = _open(path, 0)
    if fd >= 0:
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


def sync_directory(path: str) -> None:
    """Make new, renamed and removed names durable."""
    fd = _open(path, os.O_DIRECTORY)
    if fd >= 0:
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _open(path: str, flags: int) -> int:
    """A descriptor; -1 if there is no such file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise NotOpened(error.errno, error.strerror, path) from error


class FolderSync:
    """Syncs parts of one folder. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._syncfs: Callable[[int], int] | None = None
        self._looked_for_syncfs = False
        self._one_by_one = 0  # The number of groups that are still to be synced file by file.

    def sync_group(self, fds: list[int], directories: list[int]) -> None:
        """Sync the data of these files, and the names in these directories. Closes all of them."""
        try:
            if len(fds) >= _AT_LEAST_FILES and self._one_by_one == 0 and self._sync_file_system(fds[0]):
                return
            self._one_by_one = max(0, self._one_by_one - 1)
            for fd in fds:
                os.fdatasync(fd)
            for fd in directories:
                os.fsync(fd)
        finally:
            for fd in fds + directories:
                os.close(fd)

    def sync_paths(self, paths: list[str], directories: Iterable[str]) -> None:
        """The same by path, for many files."""
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if len(paths) >= _AT_LEAST_FILES and self._sync_file_system(fd):
                return
        finally:
            os.close(fd)
        # In parallel, so that the file system puts many into one commit of its journal.
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(sync_file, paths))
            list(pool.map(sync_directory, dict.fromkeys(directories)))

    def _sync_file_system(self, fd: int) -> bool:
        """Sync the file system of `fd`; return False if the system has no such call."""
        if not self._looked_for_syncfs:
            self._looked_for_syncfs = True
            self._syncfs = _find_syncfs()
        if self._syncfs is None:
            return False
        began = monotonic()
        if self._syncfs(fd) != 0:
            raise OSError(f"syncfs failed for {self._path}")
        if monotonic() - began > _SLOW_S:
            self._one_by_one = _SLOW_GROUPS
        return True


def _find_syncfs() -> Callable[[int], int] | None:
    # Before Linux 5.8, syncfs did not report failed writes.
    if sys.platform != "linux" or _kernel() < (5, 8):
        return None
    import ctypes

    try:
        return ctypes.CDLL(None).syncfs
    except (OSError, AttributeError):
        return None


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdecimal())


Done = Callable[[BaseException | None], None]
Defer = Callable[[Callable[[], None], Done], None]
# Called when a sync failed; it must end the process.
Stop = Callable[[LogTailUnknown], None]


def run_at_once(work: Callable[[], None], done: Done) -> None:
    """A `Defer` for programs without an event loop."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)
