"""The log of one partition, in Kafka's files: `<topic>-<partition>/` with segments and snapshots.

An append is one write into the page cache, which outlives the process. Indexes and snapshots only shorten the search
in the `.log` files; they are written rarely and may lag behind. `log_files.py` has the directory, `recovery.py` opens
it, and the data folder decides when it must be on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn, cast

from fencepost.machines.log.interface import (
    AbortedTxn,
    CorruptLog,
    LogConfig,
    LogTailUnknown,
    Rewrite,
    StorageFailed,
    StoredBatch,
)
from fencepost.protocol.batch import CONTROL, HEADER_BYTES, LEADER_EPOCH, Buffer, Part
from fencepost.server.storage.aborted_index import AbortedIndex, encode_txn_check
from fencepost.server.storage.active_segment import ActiveSegment
from fencepost.server.storage.checkpoints import EpochStarts
from fencepost.server.storage.heads import BadBatch, walk
from fencepost.server.storage.log_files import LogFiles, Places
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.rewriting import FileRewrite
from fencepost.server.storage.segment import SCAN_CHUNK_BYTES, Segment
from fencepost.server.storage.segment_indexes import MAX_PENDING_ENTRIES

# After a kill, each log is replayed from its last snapshot: at most this much.
SNAPSHOT_BYTES = 8 << 20
SNAPSHOT_BATCHES = 1024
# A snapshot of many producers takes time too: for this many of its bytes, one batch more may come before the next one.
SNAPSHOT_BYTES_PER_BATCH = 16
# To estimate how many batches are replayed.
_SMALL_BATCH_BYTES = 128


class FileLog:
    """See `machines.log.interface.Log`.

    Its parts are in other files: the directory (`log_files.py`), the segment that is written to (`active_segment.py`),
    the aborted transactions (`aborted_index.py`), the leader epochs (`EpochStarts`).
    """

    __slots__ = (
        "_aborted",
        "_active",
        "_batches_since_snapshot",
        "_epoch_starts",
        "_index_interval_bytes",
        "_open_files",
        "_pwrite",
        "_snapshot_batches",
        "clean_offset",
        "end_address",
        "end_offset",
        "files",
        "start_offset",
    )

    def __init__(
        self,
        directory: str,
        topic_id: bytes,
        config: LogConfig,
        open_files: OpenFiles,
        segments: list[Segment],
        end_offset: int,
        snapshots: list[int],
        leader_epochs: list[tuple[int, int]],
    ) -> None:
        self.files = LogFiles(directory, open_files, segments, snapshots)
        self.start_offset = segments[0].base_offset if segments else 0
        self.end_offset = end_offset
        self.end_address = self.files.end_address
        self.clean_offset = 0
        self._open_files = open_files
        self._pwrite = open_files.pwrite
        self._active = ActiveSegment(self.files, topic_id, config)
        self._index_interval_bytes = config.index_interval_bytes
        self._aborted = AbortedIndex(self.files.segments)
        self._batches_since_snapshot = 0
        self._snapshot_batches = SNAPSHOT_BATCHES
        self._epoch_starts = EpochStarts(directory, leader_epochs)

    @property
    def start_address(self) -> int:
        return self.files.start_address

    def configure(self, config: LogConfig) -> None:
        """Take new topic settings, also for the active segment."""
        self._active.configure(config)
        self._index_interval_bytes = config.index_interval_bytes

    # Appending.

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        active = self._active
        segment = active.segment
        size = len(batch)
        if (
            segment is None
            or last_offset > active.above_offset
            or max_timestamp > active.above_timestamp
            or segment.size + size > active.segment_bytes
            or batch[LEADER_EPOCH] != self._epoch_starts.last
        ):
            segment = self._make_ready(batch, base_offset, last_offset, max_timestamp)
        position = segment.size
        fd = segment.fd
        if fd < 0:
            fd = self._open(segment)
        segment.used = True
        try:
            written = self._pwrite(fd, batch, position)
        except OSError as error:
            _take_back(segment, fd, str(error))
        if written != size:
            _take_back(segment, fd, f"short write: {written} of {size} bytes")
        address = self.end_address
        # From here on the log has the batch. An error in the rest, which is only about finding it, stops the process.
        segment.size, self.end_address, self.end_offset = position + size, address + size, last_offset + 1
        self._batches_since_snapshot += 1
        places = self.files.places
        places.offsets.append(base_offset)
        places.addresses.append(address)
        indexes = segment.indexes
        if max_timestamp > indexes.max_timestamp:
            indexes.see_timestamp(max_timestamp, last_offset)
        if indexes.unindexed_bytes > self._index_interval_bytes:
            indexes.add(last_offset, position)
            if len(indexes.offsets.pending) >= MAX_PENDING_ENTRIES:
                _flush_indexes(segment)
            places.trim()
        indexes.unindexed_bytes += size
        return address

    def _open(self, segment: Segment) -> int:
        try:
            return self._open_files.open(segment)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _make_ready(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """Find the segment for the batch, and note its leader epoch if that is new."""
        self.files.check_there()
        is_empty = not self.files.segments
        try:
            segment = self._active.find(len(batch), base_offset, last_offset, max_timestamp)
            if is_empty:
                self.start_offset = base_offset
            if batch[LEADER_EPOCH] != self._epoch_starts.last:
                self._epoch_starts.begin(batch[LEADER_EPOCH], base_offset)
            return segment
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def leader_epochs(self) -> list[tuple[int, int]]:
        return self._epoch_starts.all()

    def roll(self) -> None:
        self.files.check_there()
        try:
            self._active.roll(self.end_offset)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    # Reading.

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
        return cast(bytes, self._read(offset, max_bytes, end_address, os.pread))

    def read_in_place(self, offset: int, max_bytes: int, end_address: int) -> Part:
        return self._read(offset, max_bytes, end_address, self._open_files.mappings.pread)

    def _read(self, offset: int, max_bytes: int, end_address: int, pread: Callable[[int, int, int], Part]) -> Part:
        files = self.files
        files.check_there()
        try:
            address = self._address_of(offset)
            size = min(end_address, self.end_address) - address
            if size <= 0:
                return b""
            segment = files.segments[-1]
            if address < segment.address:
                segment = files.segments.at(address)
                size = min(size, segment.address + segment.size - address)
            position = address - segment.address
            if size > max_bytes:
                size = min(size, _end_of_read(files.places, segment, position, max_bytes) - position)
            fd = segment.fd
            if fd < 0:
                fd = self._open_files.open(segment)
            segment.used = True
            data = pread(fd, size, position)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        if len(data) != size:
            raise StorageFailed(f"{segment.path}: {size} bytes expected at {position}, {len(data)} are there")
        end = address + size
        if end < self.end_address and not files.places.is_new(end):
            files.places.remember(files.segments.offset_at(end), end)
        return data

    def address_of(self, offset: int) -> int:
        self.files.check_there()
        try:
            return self._address_of(offset)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _address_of(self, offset: int) -> int:
        if offset >= self.end_offset:
            return self.end_address
        address = self.files.places.find(offset)
        if address is not None:
            return address
        segment = self.files.segments.of(offset)
        if offset <= segment.base_offset:
            return segment.address
        return segment.address + segment.locate(offset)

    def scan(self, from_offset: int) -> Iterator[StoredBatch]:
        """Compares checksums: a batch that is replayed must be the batch that was written."""
        address = self.address_of(from_offset)
        while address < self.end_address:
            self.files.check_there()
            segment = self.files.segments.at(address)
            end = segment.size
            try:
                for placed in walk(segment.read, address - segment.address, end, SCAN_CHUNK_BYTES, check_crc=True):
                    position, size, _, _, _, attributes, buf, at = placed
                    length = size if attributes & CONTROL else HEADER_BYTES
                    head = buf[at : at + length]
                    if len(head) < length:
                        head = segment.read(position, length)
                    yield StoredBatch(segment.address + position, size, head)
            except BadBatch as bad:
                raise CorruptLog(f"{segment.path}: {bad}") from bad
            address = segment.address + end

    def first_batch_not_before(self, timestamp: int) -> bytes | None:
        self.files.check_there()
        try:
            for segment in self.files.segments:
                found = segment.find_time(timestamp, self.start_offset)
                if found is not None:
                    return segment.read(*found)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        return None

    # The aborted-transaction index.

    def append_aborted(self, entry: AbortedTxn) -> None:
        self.files.check_there()
        try:
            segment = self._aborted.append(entry)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        if segment is not None and len(segment.indexes.txns.pending) >= MAX_PENDING_ENTRIES:
            _flush_indexes(segment)

    def aborted(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        self.files.check_there()
        try:
            return self._aborted.find(from_offset, upper_offset)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    # Snapshots of the partition's producer state.

    def save_snapshot(self, snapshot: bytes) -> None:
        files = self.files
        if files.is_forgotten or not files.segments or files.snapshots.has(self.end_offset, snapshot):
            return
        has_rolled, self._active.has_rolled = self._active.has_rolled, False
        files.snapshot_address = self.end_address
        self._batches_since_snapshot = 0
        self._snapshot_batches = max(SNAPSHOT_BATCHES, len(snapshot) // SNAPSHOT_BYTES_PER_BATCH)
        # A snapshot vouches for the aborted-transaction index below it, so the index is written first.
        if not all(_flush_indexes(segment) for segment in files.segments if segment.indexes.txns.pending):
            return
        _flush_indexes(files.segments[-1])
        txn_check = partial(encode_txn_check, files.segments)
        if files.snapshots.save(self.end_offset, snapshot, txn_check, files.recovery_point):
            files.directory_changed = True
            if files.folder is not None:
                files.folder.snapshot_saved(self, has_rolled)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        found = self.files.snapshots.newest()
        address = self.start_address if found is None else self.address_of(found[0])
        # The batches that are replayed now would be replayed again after another crash: they count for the next one.
        self.files.snapshot_address = address
        self._batches_since_snapshot = (self.end_address - address) // _SMALL_BATCH_BYTES
        return found

    def wants_snapshot(self) -> bool:
        return (
            self._batches_since_snapshot >= self._snapshot_batches
            or self.end_address - self.files.snapshot_address >= SNAPSHOT_BYTES
            or self._active.has_rolled
        )

    # Retention and cleaning.

    def segments(self) -> list[Segment]:
        return self.files.segments

    def advance_start(self, offset: int) -> None:
        assert offset <= self.end_offset, f"the log ends at {self.end_offset}, it cannot begin at {offset}"
        files = self.files
        if not files.segments:
            return
        before = self.start_offset
        self.start_offset = max(before, offset)
        files.remove_oldest(self.start_offset)
        first_offset = files.segments[0].base_offset
        if first_offset < self.start_offset != before and files.folder is not None:
            try:
                files.folder.start_moved(files.name, self.start_offset)
            except OSError as error:
                self.start_offset = max(before, first_offset)
                raise StorageFailed(str(error)) from error

    def rewrite(self, base_offset: int, end_offset: int) -> Rewrite:
        self.files.check_there()
        try:
            return FileRewrite(self.files, self._open_files, base_offset, end_offset, self._index_interval_bytes)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def note_clean(self, offset: int) -> None:
        self.clean_offset = offset
        if self.files.folder is not None:
            self.files.folder.clean_moved(self.files.name, offset)

    # The end.

    def is_changed(self) -> bool:
        """Whether its files may differ from what is durable under its recovery point."""
        return self._active.segment is not None or self.files.is_changed()

    def close(self) -> None:
        self.files.settle()

    def forget(self) -> None:
        """Close without writing, for good: see `LogFiles.forget`."""
        self._active.segment = None
        self.files.forget()


def hand_over(old: FileLog) -> FileLog:
    """A new handle on the same files, for a new leader; the old one is fenced."""
    new = FileLog.__new__(FileLog)
    for name in FileLog.__slots__:
        setattr(new, name, getattr(old, name))
    old.files = old.files.fenced()
    old._active = old._active.fenced(old.files)
    old._aborted = AbortedIndex(old.files.segments)
    return new


def _end_of_read(places: Places, segment: Segment, position: int, max_bytes: int) -> int:
    """Where whole batches from `position` on that fit in `max_bytes` end; after at least one batch."""
    address = segment.address + position
    if places.is_new(address):
        last = places.last_before(address + max_bytes)
        if last > address:
            return last - segment.address
    boundary, _ = segment.boundary_before(position, position + max_bytes)
    return boundary


def _take_back(segment: Segment, fd: int, why: str) -> NoReturn:
    """Leave no part of a refused batch behind."""
    try:
        os.ftruncate(fd, segment.size)
    except OSError as error:
        problem = f"{segment.path}: {why}; cutting the file at {segment.size} failed too: {error}"
        raise LogTailUnknown(problem) from error
    raise StorageFailed(f"{segment.path}: {why}")


def _flush_indexes(segment: Segment) -> bool:
    try:
        segment.indexes.flush()
    except OSError:
        # The next append reports a full disk. Index entries wait in memory, at worst until recovery derives them again.
        return False
    return True
