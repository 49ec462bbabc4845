"""A sorted file of fixed-size entries: the offset, time and aborted-transaction indexes of a segment.

The file always holds a correct prefix of the index; the newest entries wait in memory and are written together.
Entries that are lost with the process are derived again from the log. No descriptor is kept open, because an index is
used only for a reader that does not continue where an earlier read ended.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter

from fencepost.protocol.crc import crc32c
from fencepost.server.storage.open_files import OpenFiles, size_of

OFFSET_ENTRY = struct.Struct(">ii")  # Offset relative to the segment's base offset, position in the .log.
TIME_ENTRY = struct.Struct(">qi")  # Timestamp, relative offset.
TXN_ENTRY = struct.Struct(">hqqqq")  # Version 0, producer id, first offset, last offset, last stable offset.

_BLOCK_ENTRIES = 32
_LOADED_ENTRIES = 512

Entry = tuple[int, ...]


class IndexFile:
    """`field` is the position of a field in the entry. The fields that are searched increase from entry to entry."""

    __slots__ = ("_crc", "_entry", "_last_stored", "_open_files", "_size_bytes", "missing", "path", "pending")

    def __init__(self, open_files: OpenFiles, path: str, entry: struct.Struct) -> None:
        self.path = path
        self.pending: list[Entry] = []
        self._open_files = open_files
        self._entry = entry
        self._size_bytes = -1  # Not known yet.
        self._last_stored: Entry | None = None  # None: it was not read or written yet.
        self._crc: int | None = None  # Of the stored entries. None: not computed yet.
        self.missing = False

    @property
    def size_bytes(self) -> int:
        if self._size_bytes < 0:
            try:
                self._size_bytes = size_of(self.path)
            except FileNotFoundError:
                self._size_bytes = 0
                self.missing = True
        return self._size_bytes

    @property
    def stored(self) -> int:
        """How many entries the file has. Bytes of an incomplete entry do not count; a flush replaces them."""
        return self.size_bytes // self._entry.size

    def is_torn(self) -> bool:
        return self.size_bytes % self._entry.size != 0

    def __len__(self) -> int:
        return self.stored + len(self.pending)

    def last(self) -> Entry | None:
        if self.pending:
            return self.pending[-1]
        if not self.stored:
            return None
        if self._last_stored is None:
            # Kept, because an append whose timestamp is not the greatest asks for it again and again.
            self._last_stored = self._load(self.stored - 1, self.stored)[0]
        return self._last_stored

    def entry(self, index: int) -> Entry | None:
        """The stored entry at this index, if there is one."""
        return self._load(index, index + 1)[0] if index < self.stored else None

    def floor(self, field: int, value: int) -> Entry | None:
        """The last entry whose `field` is at most `value`."""
        if self.pending and self.pending[0][field] <= value:
            return self.pending[bisect_right(self.pending, value, key=itemgetter(field)) - 1]
        if not self.stored:
            return None
        _, block = self._block_before(field, value)
        found = bisect_right(block, value, key=itemgetter(field)) - 1
        return block[found] if found >= 0 else None

    def starting(self, field: int, value: int) -> Iterator[Entry]:
        """The entries whose `field` is at least `value`, in order."""
        if self.stored and not (self.pending and self.pending[0][field] <= value):
            index, block = self._block_before(field, value - 1)
            yield from block[bisect_left(block, value, key=itemgetter(field)) :]
            index += len(block)
            while index < self.stored:
                block = self._load(index, index + _LOADED_ENTRIES)
                yield from block
                index += len(block)
        yield from self.pending[bisect_left(self.pending, value, key=itemgetter(field)) :]

    def flush(self) -> None:
        """Write the pending entries. On OSError they stay pending, and the next flush tries again."""
        if self.missing:
            self.create(keep_pending=True)
        if not self.pending:
            return
        data = b"".join([self._entry.pack(*entry) for entry in self.pending])
        position = self.stored * self._entry.size
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = self._open_files.pwrite(fd, data, position)
        finally:
            os.close(fd)
        if written != len(data):
            raise OSError(f"short write: {written} of {len(data)} bytes to {self.path}")
        self._size_bytes = position + len(data)
        self._last_stored = self.pending[-1]
        if self._crc is not None:
            self._crc = crc32c(data, self._crc)
        self.pending.clear()

    def keep_ordered(self) -> None:
        """Cut the file at the first entry that is not greater than the one before, as a power loss may leave it."""
        keep = 0
        before: Entry | None = None
        for entry in self._load(0, self.stored) if self.stored else []:
            if before is not None and not all(now > then for now, then in zip(entry, before, strict=True)):
                break
            before = entry
            keep += 1
        self.truncate(keep)

    def keep_below(self, field: int, value: int) -> None:
        """Cut the file where an entry's `field` reaches `value`, and remove bytes of an incomplete entry."""
        assert not self.pending, "an index is cut before anything is added to it"
        self.truncate(self.stored_below(field, value))

    def stored_below(self, field: int, value: int) -> int:
        """How many stored entries have a `field` below `value`."""
        if not self.stored:
            return 0
        if not self.pending and self.last()[field] < value:  # type: ignore[index]
            return self.stored
        index, block = self._block_before(field, value - 1)
        return index + bisect_left(block, value, key=itemgetter(field))

    def truncate(self, entries: int) -> None:
        """Keep the first `entries`, and no bytes of an incomplete one."""
        self.pending.clear()
        if self.size_bytes == entries * self._entry.size:
            return
        os.truncate(self.path, entries * self._entry.size)
        self._size_bytes = entries * self._entry.size
        self._last_stored = None
        self._crc = None

    def checksum(self, entries: int) -> int:
        """The CRC-32C of the first `entries` that are stored."""
        if entries < self.stored:
            return self._checksum(entries)
        if self._crc is None:
            self._crc = self._checksum(entries)
        return self._crc

    def _checksum(self, entries: int) -> int:
        if not entries:
            return 0
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return crc32c(os.pread(fd, entries * self._entry.size, 0))
        finally:
            os.close(fd)

    def create(self, keep_pending: bool = False) -> None:
        """Create the file, or empty it."""
        if not keep_pending:
            self.pending.clear()
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        self._size_bytes = 0
        self._last_stored = None
        self._crc = None
        self.missing = False

    def create_later(self) -> None:
        """There is no file; the first flush creates it."""
        self.pending.clear()
        self._size_bytes = 0
        self._last_stored = None
        self._crc = None
        self.missing = True

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        self.create_later()

    def _block_before(self, field: int, value: int) -> tuple[int, list[Entry]]:
        """The index and the entries of the stored block that has the last entry whose `field` is at most `value`."""
        low, high = 0, self.stored
        size = self._entry.size
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while high - low > _BLOCK_ENTRIES:
                middle = (low + high) // 2
                if self._entry.unpack(os.pread(fd, size, middle * size))[field] <= value:
                    low = middle
                else:
                    high = middle
            return low, list(self._entry.iter_unpack(os.pread(fd, (high - low) * size, low * size)))
        finally:
            os.close(fd)

    def _load(self, first: int, after: int) -> list[Entry]:
        size = self._entry.size
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return list(self._entry.iter_unpack(os.pread(fd, (min(after, self.stored) - first) * size, first * size)))
        finally:
            os.close(fd)
