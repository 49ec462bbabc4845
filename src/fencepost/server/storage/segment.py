"""One segment of a log: a `.log` file with the batches, and the three indexes beside it.

Kafka's names and layouts: `%020d.log`, `.index`, `.timeindex`, `.txnindex`, named by the base offset.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress

from fencepost.machines.log.interface import CorruptLog, StorageFailed
from fencepost.server.storage.heads import BadBatch, Placed, walk
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.segment_indexes import NO_TIMESTAMP, UNKNOWN_TIMESTAMP, SegmentIndexes

LOOKUP_CHUNK_BYTES = 8 << 10
SCAN_CHUNK_BYTES = 256 << 10

# Kafka's suffixes: being written by the cleaner; complete and about to replace others; about to be removed.
CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"


def numbered(names: Iterable[str]) -> dict[str, list[int]]:
    """By suffix, the offsets of the files that have one in their names, such as `%020d.log`, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for name in sorted(names):
        if name[20:21] == "." and name[:20].isdecimal():
            found[name[21:]].append(int(name[:20]))
    return found


class Segment:
    """`size` is the valid part of the file; `address` is where it begins in the whole log."""

    __slots__ = (
        "_open_files",
        "address",
        "base_offset",
        "fd",
        "indexes",
        "path",
        "size",
        "used",
    )

    def __init__(
        self, open_files: OpenFiles, directory: str, base_offset: int, address: int, size: int, suffix: str = ""
    ) -> None:
        stem = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.address = address
        self.size = size
        self.path = stem + ".log" + suffix
        self.fd = -1
        self.used = False
        self.indexes = SegmentIndexes(open_files, stem, base_offset, suffix)
        self._open_files = open_files

    def create_files(self) -> None:
        """Create the `.log`; the first flush creates the indexes, at the latest when the next segment begins."""
        self.indexes.create_later()
        self._open_files.at("segment.roll")
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def remove_files(self) -> None:
        """The `.log` is removed first: the next start removes indexes without one."""
        self._open_files.close(self)
        for path in self.paths():
            with suppress(FileNotFoundError):
                os.unlink(path)

    def paths(self) -> list[str]:
        return [self.path, *(index.path for index in self.indexes.files())]

    def set_aside(self, keep_indexes: bool = False) -> str:
        """Rename the `.log`, so that it is no longer part of the log; return its new path. Remove the indexes."""
        self._open_files.close(self)
        doomed = self.path + DELETED
        os.rename(self.path, doomed)
        if not keep_indexes:
            for index in self.indexes.files():
                index.remove()
        return doomed

    def change_suffix(self, old: str, new: str) -> None:
        """The `.log` is renamed last: once it has its new name, the others have theirs."""
        for file in (*self.indexes.files(), self):
            path = file.path.removesuffix(old) + new
            os.rename(file.path, path)
            file.path = path

    def close_file(self) -> None:
        self._open_files.close(self)

    def read(self, position: int, size_bytes: int) -> bytes:
        return os.pread(self._open_files.open(self), size_bytes, position)

    def walk(self, position: int, end: int | None = None, chunk_bytes: int = LOOKUP_CHUNK_BYTES) -> Iterator[Placed]:
        """Batches that were valid when they were written; raises CorruptLog at one that is not any more."""
        try:
            yield from walk(self.read, position, self.size if end is None else end, chunk_bytes)
        except BadBatch as bad:
            raise CorruptLog(f"{self.path}: {bad}") from bad

    def check(self, position: int, next_offset: int | None, may_have_gaps: bool) -> Iterator[Placed]:
        """Batches of a file that is not trusted: compares checksums and offsets, and raises BadBatch."""
        for placed in walk(self.read, position, self.size, SCAN_CHUNK_BYTES, check_crc=True):
            base_offset = placed[2]
            is_gap = next_offset is not None and base_offset > next_offset
            if next_offset not in (None, base_offset) and not (is_gap and may_have_gaps):
                why = f"base offset is {base_offset}, expected {next_offset}"
                raise BadBatch(placed[0], why, is_whole=True)
            next_offset = placed[3] + 1
            yield placed

    # Finding.

    def locate(self, offset: int) -> int:
        """The position of the first batch whose last offset is at least `offset`; `size` if there is none."""
        for placed in self.walk(self._position_before(offset)):
            if placed[3] >= offset:
                return placed[0]
        return self.size

    def boundary_before(self, position: int, limit: int) -> tuple[int, int]:
        """The last beginning of a batch after `position` and not after `limit`, and that batch's base offset.

        A batch begins at `position`. So that a read makes progress, the next batch is returned even if it is beyond
        `limit`. The end of the file counts as a beginning, with base offset -1.
        """
        entry = self.indexes.offsets.floor(1, limit)
        start = position
        if entry is not None and entry[1] > position and self.entry_fits(entry):
            start = entry[1]
        boundary, base_offset = -1, -1
        for placed in self.walk(start):
            if placed[0] > position:
                if placed[0] > limit and boundary >= 0:
                    return boundary, base_offset
                boundary, base_offset = placed[0], placed[2]
                if boundary > limit:
                    return boundary, base_offset
        if self.size <= limit or boundary < 0:
            return self.size, -1
        return boundary, base_offset

    def find_time(self, timestamp: int, from_offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch, from this offset on, whose max timestamp is at least `timestamp`."""
        if not self.has_good_times():
            self.rebuild_indexes()
        self.indexes.load_max_timestamp()
        if self.indexes.max_timestamp < timestamp:
            return None
        entry = self.indexes.times.floor(0, timestamp)
        if entry is not None and not self.time_entry_fits(entry):
            self.rebuild_indexes()
            entry = self.indexes.times.floor(0, timestamp)
        start = self._position_before(self.base_offset + entry[1]) if entry is not None else 0
        for placed in self.walk(start):
            if placed[4] >= timestamp and placed[3] >= from_offset:
                return placed[0], placed[1]
        return None

    def largest_timestamp(self) -> int:
        try:
            if not self.has_good_times():
                self.rebuild_indexes()
            self.indexes.load_max_timestamp()
            if self.indexes.max_timestamp >= 0:
                return self.indexes.max_timestamp
            return os.stat(self.path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise StorageFailed(f"{self.path}: {error}") from error

    def first_timestamp(self) -> int:
        try:
            return next(self.walk(0))[4] if self.size else NO_TIMESTAMP
        except OSError as error:
            raise StorageFailed(f"{self.path}: {error}") from error

    def _position_before(self, offset: int) -> int:
        """The beginning of the batch that has `offset`, or of an earlier one."""
        entry = self.indexes.offsets.floor(0, offset - self.base_offset)
        if entry is None:
            return 0
        if not self.entry_fits(entry):
            self.rebuild_indexes()
            return self._position_before(offset)
        return entry[1]

    def entry_fits(self, entry: tuple[int, ...], check_crc: bool = False) -> bool:
        """Whether an entry of the offset index points at the batch that it names."""
        relative_offset, position = entry
        if not 0 <= position < self.size:
            return False
        try:
            placed = next(walk(self.read, position, self.size, LOOKUP_CHUNK_BYTES, check_crc))
        except BadBatch:
            return False
        return placed[3] == self.base_offset + relative_offset

    def has_good_times(self) -> bool:
        """Whether the greatest timestamp is known, or the last entry of the time index is valid and has it."""
        if self.indexes.max_timestamp != UNKNOWN_TIMESTAMP or self.size == 0:
            return True
        last = self.indexes.times.last()
        return last is not None and not self.indexes.times.is_torn() and self.time_entry_fits(last)

    def time_entry_fits(self, entry: tuple[int, ...]) -> bool:
        """Whether an entry of the time index names a batch with its timestamp."""
        timestamp, relative_offset = entry
        offset = self.base_offset + relative_offset
        near = self.indexes.offsets.floor(0, relative_offset)
        start = near[1] if near is not None and self.entry_fits(near) else 0
        try:
            for placed in walk(self.read, start, self.size, LOOKUP_CHUNK_BYTES):
                if placed[3] >= offset:
                    return placed[2] <= offset and placed[4] == timestamp
        except BadBatch:
            pass
        return False

    # Indexing.

    def take_up(self) -> None:
        """Prepare to append: find out where the indexes end."""
        indexes = self.indexes
        last = indexes.offsets.last()
        if (last is not None and not self.entry_fits(last)) or not self.has_good_times():
            self.rebuild_indexes()
            last = indexes.offsets.last()
        indexes.unindexed_bytes = self.size - (last[1] if last is not None else 0)
        indexes.load_max_timestamp()

    def rebuild_indexes(self, index_interval_bytes: int = 4096) -> None:
        """Derive offset and time index from the `.log` again.

        A process that is killed meanwhile leaves at least one of the files missing, so the next start does it again.
        """
        self.indexes.forget()
        for placed in self.walk(0, chunk_bytes=SCAN_CHUNK_BYTES):
            self.indexes.note(placed, index_interval_bytes)
        self.indexes.seal()
