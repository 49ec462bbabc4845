"""The three indexes beside a segment's `.log`: offsets, times and aborted transactions.

Kafka: an entry of the offset index is the *last* offset of a batch and the position of that same batch; there is one
after every `index.interval.bytes`. An entry of the time index is the greatest timestamp of all batches up to an offset.

Each is a sorted file of entries of a fixed size. It always holds a correct prefix of the index; the newest entries wait
in memory and are written together. Entries that are lost with the process are derived again from the log. No descriptor
is kept open, because an index is used only for a reader that does not continue where an earlier read ended.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter

from fencepost.protocol.crc import crc32c
from fencepost.server.storage.heads import Placed
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


NO_TIMESTAMP = -1
UNKNOWN_TIMESTAMP = -2  # The time index was not read yet.
MAX_PENDING_ENTRIES = 64  # With 4 KiB between entries, a killed process leaves about 256 KiB without index.

SUFFIXES = ("index", "timeindex", "txnindex")


class SegmentIndexes:
    """`max_timestamp` is that of the segment; `unindexed_bytes` were appended since the last entry."""

    __slots__ = (
        "_base_offset",
        "_max_timestamp_offset",
        "_open_files",
        "max_timestamp",
        "offsets",
        "times",
        "txns",
        "unindexed_bytes",
    )

    def __init__(self, open_files: OpenFiles, stem: str, base_offset: int, suffix: str) -> None:
        self.offsets = IndexFile(open_files, stem + ".index" + suffix, OFFSET_ENTRY)
        self.times = IndexFile(open_files, stem + ".timeindex" + suffix, TIME_ENTRY)
        self.txns = IndexFile(open_files, stem + ".txnindex" + suffix, TXN_ENTRY)
        self.max_timestamp = UNKNOWN_TIMESTAMP
        self.unindexed_bytes = 0
        self._max_timestamp_offset = base_offset
        self._base_offset = base_offset
        self._open_files = open_files

    def files(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        return self.offsets, self.times, self.txns

    def create_later(self) -> None:
        """The segment is new. The first flush creates the files."""
        for index in self.files():
            index.create_later()
        self.max_timestamp = NO_TIMESTAMP

    def load_max_timestamp(self) -> None:
        if self.max_timestamp == UNKNOWN_TIMESTAMP:
            last = self.times.last()
            self.max_timestamp, relative_offset = last if last is not None else (NO_TIMESTAMP, 0)
            self._max_timestamp_offset = self._base_offset + relative_offset

    def see_timestamp(self, max_timestamp: int, last_offset: int) -> None:
        """Called for a batch whose timestamp is greater than all before it."""
        self.max_timestamp = max_timestamp
        self._max_timestamp_offset = last_offset

    def add(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch at `position`, after `see_timestamp` for it."""
        self.offsets.pending.append((last_offset - self._base_offset, position))
        self.add_time()
        self.unindexed_bytes = 0

    def add_time(self) -> None:
        """Add an entry for the greatest timestamp, unless the last entry has it."""
        last = self.times.last()
        if self.max_timestamp > (last[0] if last is not None else NO_TIMESTAMP):
            self.times.pending.append((self.max_timestamp, self._max_timestamp_offset - self._base_offset))

    def note(self, placed: Placed, index_interval_bytes: int) -> None:
        """Index one batch as an append would."""
        position, size, _, last_offset, max_timestamp, *_ = placed
        if max_timestamp > self.max_timestamp:
            self.see_timestamp(max_timestamp, last_offset)
        if self.unindexed_bytes > index_interval_bytes:
            self.add(last_offset, position)
        self.unindexed_bytes += size

    def flush(self) -> None:
        """May raise OSError, and may be called again: an index is at worst too short, never wrong."""
        if not any(index.pending or index.missing for index in self.files()):
            return
        # The time index first: recovery removes its entries that are ahead of the offset index.
        self.times.flush()
        self._open_files.at("index.write")
        self.offsets.flush()
        self.txns.flush()

    def seal(self) -> None:
        """Complete the indexes of a segment that takes no more batches."""
        self.add_time()
        self.flush()

    def forget(self) -> None:
        """Begin new offset and time indexes; they are not on disk until the next flush."""
        for index in (self.times, self.offsets):
            index.remove()
        self.max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self._base_offset
        self.unindexed_bytes = 0
