"""The open `.log` files of all logs: opened on use, and at most `limit` at a time.

A use of a segment sets its `used`, which costs the hot path one store. When too many are open, the first one that was
not used since the last look is closed (the clock algorithm). Logs and indexes write with `pwrite` of this object and
call `at` at crash points, so that a test can make the disk fail or kill the process.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from fencepost.open_files import share_of_open_files
from fencepost.protocol.batch import Buffer, Part

# A smaller read is copied: mapping costs five system calls, and a page fault for every 64 KiB.
LEAST_MAPPED_BYTES = 1 << 17
# Each mapping takes a file descriptor. Clients that read slowly must not take those of others, so with a low limit of
# open files there are fewer mappings.
MOST_MAPPINGS = 256


class Mappings:
    """Large reads for a client, without a copy: the pages of the page cache, mapped.

    The kernel copies them into the socket, and nothing else may read them. If the disk fails, or a program cuts the
    file, an access to a mapped page ends the process, but a system call that meets such a page only fails. The bytes of
    a log never change, and a deleted file lives on while it is mapped. A mapping ends with the last view of it.
    """

    def __init__(self) -> None:
        self._living: WeakSet[mmap.mmap] = WeakSet()
        self._limit = share_of_open_files(16, most=MOST_MAPPINGS)

    def __len__(self) -> int:
        return len(self._living)

    def pread(self, fd: int, size_bytes: int, position: int) -> Part:
        """As `os.pread`, or a view of the file."""
        if size_bytes < LEAST_MAPPED_BYTES or len(self._living) >= self._limit:
            return os.pread(fd, size_bytes, position)
        before = position % mmap.ALLOCATIONGRANULARITY
        try:
            pages = mmap.mmap(fd, before + size_bytes, access=mmap.ACCESS_READ, offset=position - before)
        except (OSError, ValueError):
            # The file is too short, or there is no room for a mapping. A plain read works, or says what is wrong.
            return os.pread(fd, size_bytes, position)
        self._living.add(pages)
        return memoryview(pages)[before:]


PWrite = Callable[[int, Buffer, int], int]
At = Callable[[str], None]


class OnDisk(Protocol):
    """A file that is kept open: a segment."""

    path: str
    fd: int
    used: bool


def size_of(path: str) -> int:
    """Raises IsADirectoryError with the path: later calls that name a descriptor would not say which file it is."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return found.st_size


def never_crash(point: str) -> None:
    """The crash hook of a process without crash points."""


class OpenFiles:
    def __init__(
        self, limit: int, pwrite: PWrite = os.pwrite, at: At = never_crash, *, is_read_only: bool = False
    ) -> None:
        self.pwrite = pwrite
        self._mode = os.O_RDONLY if is_read_only else os.O_RDWR
        self.at = at
        self.mappings = Mappings()
        self._limit = limit
        self._open: dict[OnDisk, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, file: OnDisk) -> int:
        """Open it, if it is not open; the descriptor is valid until the next `open`."""
        if file.fd < 0:
            while len(self._open) >= self._limit:
                self._close_one()
            file.fd = self._with_room(lambda: os.open(file.path, self._mode | os.O_CLOEXEC))
            self._open[file] = None
        file.used = True
        return file.fd

    def duplicate(self, file: OnDisk) -> int:
        """A descriptor that belongs to the caller: another thread may use it even after the file is closed here."""
        return self._with_room(lambda: os.dup(self.open(file)))

    def open_path(self, path: str) -> int:
        """A descriptor that belongs to the caller."""
        return self._with_room(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def close(self, file: OnDisk) -> None:
        if file.fd >= 0:
            del self._open[file]
            fd, file.fd = file.fd, -1
            os.close(fd)

    def _close_one(self) -> None:
        while True:
            file = next(iter(self._open))
            if not file.used:
                self.close(file)
                return
            file.used = False
            del self._open[file]
            self._open[file] = None

    def _with_room(self, open_one: Callable[[], int]) -> int:
        """Connections use descriptors too: if none is left, close segments until `open_one` succeeds."""
        while True:
            try:
                return open_one()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._open) <= 1:
                    raise
                self._close_one()
