"""The log of one partition, in Kafka's files: `<topic>-<partition>/` with segments and snapshots.

An append is one write into the page cache, which outlives the process. Indexes and snapshots only
shorten the way to what the `.log` files say; they are written seldom and may lag behind.
`recovery.py` makes a FileLog of what it finds in a directory; the folder says when it must be on disk.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from fencepost.machines.log.interface import AbortedTxn, LogConfig, LogTailUnknown, Rewrite, StorageFailed, StoredBatch
from fencepost.protocol.batch import CONTROL, HEADER_BYTES, LEADER_EPOCH
from fencepost.server.storage.checkpoints import (
    TOPIC_ID_NAME,
    encode_topic_id,
    replace_file,
    write_leader_epochs,
)
from fencepost.server.storage.heads import BadBatch, walk
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.rewriting import FileRewrite
from fencepost.server.storage.segment import (
    MAX_PENDING_ENTRIES,
    SCAN_CHUNK_BYTES,
    UNKNOWN_TIMESTAMP,
    CorruptLog,
    Segment,
)
from fencepost.server.storage.segmented_log import SegmentedLog
from fencepost.server.storage.snapshots import SnapshotFiles

# A killed process replays what came after its last snapshot: at most this much, of each of its logs.
SNAPSHOT_BYTES = 8 << 20
SNAPSHOT_BATCHES = 1024
# But a snapshot of many producers is work too: for so many of its bytes a batch more may come between two.
SNAPSHOT_BYTES_PER_BATCH = 16

_TAIL_BATCHES = 256
_PLACES = 64
_NEVER = 1 << 62
_MAX_RELATIVE_OFFSET = (1 << 31) - 1


class FileLog(SegmentedLog):
    """See `machines.log.interface.Log`. `segments` is what the directory holds; the last one is appended to."""

    __slots__ = (
        "_active",
        "_batches_since_snapshot",
        "_config",
        "_index_interval_bytes",
        "_last_aborted_offset",
        "_leader_epoch",
        "_leader_epochs",
        "_places",
        "_pwrite",
        "_roll_above_offset",
        "_roll_above_timestamp",
        "_rolled",
        "_segment_bytes",
        "_snapshot_batches",
        "_tail_addresses",
        "_tail_offsets",
        "_topic_id",
        "directory_created",
        "recovery_point",
    )

    def __init__(
        self,
        directory: str,
        topic_id: bytes,
        config: LogConfig,
        files: OpenFiles,
        segments: list[Segment],
        end_offset: int,
        snapshots: list[int],
        leader_epochs: list[tuple[int, int]],
    ) -> None:
        super().__init__(directory, files, segments, end_offset, SnapshotFiles(directory, files.at, snapshots))
        # How far it is durable together with indexes and a snapshot, and whether the folder's list has its name.
        self.recovery_point = 0
        self.directory_created = False
        self._topic_id = topic_id
        self._pwrite = files.pwrite
        self._active: Segment | None = None
        self._batches_since_snapshot = 0
        self._snapshot_batches = SNAPSHOT_BATCHES
        self._rolled = False
        self._leader_epochs = leader_epochs
        self._leader_epoch = leader_epochs[-1][0].to_bytes(4, "big", signed=True) if leader_epochs else b""
        self._last_aborted_offset: int | None = None
        # Exact places of the newest batches: consumers at the end of the log need no index.
        self._tail_offsets = array("q")
        self._tail_addresses = array("q")
        # Where reads ended: consumers that go on there need no index either.
        self._places: dict[int, int] = {}
        # Below these an append goes into the active segment. Until there is one, nothing does.
        self._roll_above_timestamp = -_NEVER
        self._roll_above_offset = -1
        self._config = config
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Take new topic settings, also for the active segment."""
        if abs(self._roll_above_timestamp) != _NEVER:
            self._roll_above_timestamp += config.segment_ms - self._config.segment_ms
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes

    # Appending.

    def append(self, batch: bytes, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        segment = self._active
        size = len(batch)
        if (
            segment is None
            or last_offset > self._roll_above_offset
            or max_timestamp > self._roll_above_timestamp
            or segment.size + size > self._segment_bytes
            or batch[LEADER_EPOCH] != self._leader_epoch
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
            self._take_back(segment, fd, str(error))
        if written != size:
            self._take_back(segment, fd, f"short write: {written} of {size} bytes")
        address = self.end_address
        segment.size = position + size
        self.end_address = address + size
        self.end_offset = last_offset + 1
        self._batches_since_snapshot += 1
        self._tail_offsets.append(base_offset)
        self._tail_addresses.append(address)
        if max_timestamp > segment.max_timestamp:
            segment.see_timestamp(max_timestamp, last_offset)
        if segment.unindexed_bytes > self._index_interval_bytes:
            self._index(segment, last_offset, position)
        segment.unindexed_bytes += size
        return address

    def _take_back(self, segment: Segment, fd: int, why: str) -> NoReturn:
        """Leave no part of a refused batch behind."""
        try:
            os.ftruncate(fd, segment.size)
        except OSError as error:
            problem = f"{segment.path}: {why}; cutting the file at {segment.size} failed too: {error}"
            raise LogTailUnknown(problem) from error
        raise StorageFailed(f"{segment.path}: {why}")

    def _open(self, segment: Segment) -> int:
        try:
            return self._files.open(segment)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _index(self, segment: Segment, last_offset: int, position: int) -> None:
        segment.index(last_offset, position)
        if len(segment.offsets.pending) >= MAX_PENDING_ENTRIES:
            self._flush_indexes(segment)
        if len(self._tail_offsets) > 2 * _TAIL_BATCHES:
            del self._tail_offsets[:-_TAIL_BATCHES]
            del self._tail_addresses[:-_TAIL_BATCHES]

    def _flush_indexes(self, segment: Segment) -> bool:
        try:
            segment.flush_indexes()
        except OSError:
            # A full disk is told to whoever appends. Index entries wait in memory, at worst until recovery.
            return False
        return True

    def _make_ready(self, batch: bytes, base_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """The segment that takes the batch: the active one, found again after a start, or a new one."""
        self._check_there()
        try:
            segment = self._active
            if segment is None and self._segments:
                segment = self._take_up(self._segments[-1])
            if segment is None or self._is_full_for(segment, len(batch), last_offset, max_timestamp):
                segment = self._roll(base_offset)
            if segment.size == 0:
                self._roll_above_timestamp = max_timestamp + self._config.segment_ms if max_timestamp >= 0 else _NEVER
            if batch[LEADER_EPOCH] != self._leader_epoch:
                self._begin_epoch(batch[LEADER_EPOCH], base_offset)
            return segment
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _is_full_for(self, segment: Segment, size: int, last_offset: int, max_timestamp: int) -> bool:
        if last_offset > self._roll_above_offset:
            return True
        return segment.size > 0 and (
            segment.size + size > self._segment_bytes or max_timestamp > self._roll_above_timestamp
        )

    def _take_up(self, segment: Segment) -> Segment:
        segment.take_up()
        self._roll_above_offset = segment.base_offset + _MAX_RELATIVE_OFFSET
        self._roll_above_timestamp = _NEVER
        if segment.size:
            # Kafka: a segment's age is counted from its first batch's timestamp.
            first_timestamp = next(segment.walk(0))[4]
            if first_timestamp >= 0:
                self._roll_above_timestamp = first_timestamp + self._config.segment_ms
        self._active = segment
        return segment

    def _roll(self, base_offset: int) -> Segment:
        old = self._active
        if old is None:
            self._create_directory()
        else:
            with suppress(OSError):  # They wait in memory, at worst until recovery.
                old.seal()
        segment = Segment(self._files, self.directory, base_offset, self.end_address, 0)
        try:
            segment.create_files()
        except OSError:
            segment.remove_files()
            raise
        if not self._segments:
            self.start_offset = base_offset
        self._segments.append(segment)
        self._active = segment
        self._roll_above_offset = base_offset + _MAX_RELATIVE_OFFSET
        self._rolled = old is not None
        self.directory_changed = True
        return segment

    def roll(self) -> None:
        self._check_there()
        try:
            if self._active is None and self._segments:
                self._take_up(self._segments[-1])
            if self._active is not None and self._active.size:
                self._roll(self.end_offset)
                self._roll_above_timestamp = -_NEVER  # Its first batch decides.
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _create_directory(self) -> None:
        try:
            os.mkdir(self.directory, 0o755)
            self.directory_created = True
        except FileExistsError:
            pass
        path = f"{self.directory}/{TOPIC_ID_NAME}"
        if not os.path.exists(path):
            replace_file(path, encode_topic_id(self._topic_id), durable=False)

    def _begin_epoch(self, leader_epoch: bytes, start_offset: int) -> None:
        epoch = int.from_bytes(leader_epoch, "big", signed=True)
        if epoch > (self._leader_epochs[-1][0] if self._leader_epochs else -1):
            epochs = [*self._leader_epochs, (epoch, start_offset)]
            write_leader_epochs(self.directory, epochs)
            self._leader_epochs = epochs
        self._leader_epoch = bytes(leader_epoch)

    def leader_epochs(self) -> list[tuple[int, int]]:
        return list(self._leader_epochs)

    # Reading.

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
        self._check_there()
        try:
            address = self._places.get(offset)
            if address is None:
                address = self._address_of(offset)
            size = min(end_address, self.end_address) - address
            if size <= 0:
                return b""
            segment = self._segments[-1]
            if address < segment.address:
                segment = self._segment_at(address)
                size = min(size, segment.address + segment.size - address)
            position = address - segment.address
            if size > max_bytes:
                size = self._cut(segment, position, max_bytes, size)
            fd = segment.fd
            if fd < 0:
                fd = self._files.open(segment)
            segment.used = True
            data = os.pread(fd, size, position)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        if len(data) != size:
            raise StorageFailed(f"{segment.path}: {size} bytes expected at {position}, {len(data)} are there")
        end = address + size
        if end < self.end_address and (not self._tail_addresses or end < self._tail_addresses[0]):
            self._remember_place(segment, end)
        return data

    def _cut(self, segment: Segment, position: int, max_bytes: int, size: int) -> int:
        """How many bytes of whole batches from `position` on fit in `max_bytes`; at least one batch."""
        addresses = self._tail_addresses
        address = segment.address + position
        if addresses and address >= addresses[0]:
            index = bisect_right(addresses, address + max_bytes) - 1
            if addresses[index] > address:
                return min(size, addresses[index] - address)
        boundary, _ = segment.boundary_before(position, position + max_bytes)
        return min(size, boundary - position)

    def _remember_place(self, segment: Segment, address: int) -> None:
        """Note the batch after a read, which its consumer will ask for next."""
        position = address - segment.address
        if position == segment.size:
            following = self._segment_at(address)
            offset = following.base_offset
        else:
            offset = int.from_bytes(segment.read(position, 8), "big")
        if len(self._places) >= _PLACES:
            del self._places[next(iter(self._places))]
        self._places[offset] = address

    def forget_places(self, address: int) -> None:
        self._places.clear()
        below = bisect_left(self._tail_addresses, address)
        del self._tail_offsets[:below]
        del self._tail_addresses[:below]

    def address_of(self, offset: int) -> int:
        self._check_there()
        try:
            return self._address_of(offset)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _address_of(self, offset: int) -> int:
        if offset >= self.end_offset:
            return self.end_address
        offsets = self._tail_offsets
        if offsets and offset >= offsets[0]:
            return self._tail_addresses[bisect_right(offsets, offset) - 1]
        segment = self._segment_of(offset)
        if offset <= segment.base_offset:
            return segment.address
        return segment.address + segment.locate(offset)

    def scan(self, from_offset: int) -> Iterator[StoredBatch]:
        """With checksums: what is replayed must be what was written."""
        address = self.address_of(from_offset)
        while address < self.end_address:
            self._check_there()
            segment = self._segment_at(address)
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

    def offset_for_time(self, timestamp: int) -> bytes | None:
        self._check_there()
        try:
            for segment in self._segments:
                found = segment.find_time(timestamp, self.start_offset)
                if found is not None:
                    return segment.read(*found)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        return None

    # The aborted-transaction index.

    def append_aborted(self, entry: AbortedTxn) -> None:
        self._check_there()
        try:
            if entry.last_offset <= self._last_aborted():
                return
        except OSError as error:
            raise StorageFailed(str(error)) from error
        # Kafka: the entry is kept in the segment of the marker.
        segment = self._segment_of(entry.last_offset)
        segment.txns.pending.append((0, *entry))
        self._last_aborted_offset = entry.last_offset
        if len(segment.txns.pending) >= MAX_PENDING_ENTRIES:
            self._flush_indexes(segment)

    def aborted(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        self._check_there()
        try:
            return self._find_aborted(from_offset, upper_offset)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    def _find_aborted(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        if from_offset > self._last_aborted():
            return found
        for index in range(self._segment_index(from_offset), len(self._segments)):
            txns = self._segments[index].txns
            if not len(txns):
                continue
            for _, producer_id, first_offset, last_offset, last_stable_offset in txns.starting(3, from_offset):
                if first_offset < upper_offset:
                    found.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset))
                if last_stable_offset >= upper_offset:
                    # Every transaction that ends after this one began at or after the LSO here.
                    return found
        return found

    def _last_aborted(self) -> int:
        if self._last_aborted_offset is None:
            found = (segment.txns.last() for segment in reversed(self._segments))
            # Not before all were asked: one that cannot be read does not say that there is none.
            self._last_aborted_offset = next((last[3] for last in found if last is not None), -1)
        return self._last_aborted_offset

    # Snapshots of the partition's producer state.

    def save_snapshot(self, snapshot: bytes) -> None:
        if self._forgotten or not self._segments or self.snapshots.has(self.end_offset, snapshot):
            return
        rolled, self._rolled = self._rolled, False
        self._snapshot_address = self.end_address
        self._batches_since_snapshot = 0
        self._snapshot_batches = max(SNAPSHOT_BATCHES, len(snapshot) // SNAPSHOT_BYTES_PER_BATCH)
        # A snapshot vouches for the aborted-transaction index below it, so that is written first.
        if not all(self._flush_indexes(segment) for segment in self._segments if segment.txns.pending):
            return
        self._flush_indexes(self._segments[-1])
        if self.snapshots.save(self.end_offset, snapshot, self.recovery_point):
            self.directory_changed = True
            if self.owner is not None:
                self.owner.snapshot_saved(self, rolled)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        found = self.snapshots.newest()
        self._count_replay(self.start_address if found is None else self.address_of(found[0]))
        return found

    def _count_replay(self, snapshot_address: int) -> None:
        """What is replayed now would be replayed again after another crash: ask for a snapshot in time."""
        self._snapshot_address = snapshot_address
        self._batches_since_snapshot = (self.end_address - snapshot_address) // 128

    def wants_snapshot(self) -> bool:
        return (
            self._batches_since_snapshot >= self._snapshot_batches
            or self.end_address - self._snapshot_address >= SNAPSHOT_BYTES
            or self._rolled
        )

    # Cleaning.

    def rewrite(self, base_offset: int, end_offset: int) -> Rewrite:
        self._check_there()
        try:
            return FileRewrite(self, self._files, base_offset, end_offset, self._index_interval_bytes)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    # Durability, at the folder's command.

    def is_changed(self) -> bool:
        """Whether its files may differ from what is durable under its recovery point."""
        return self._active is not None or self.directory_changed or self.end_address > self.recovery_address

    def close(self) -> None:
        self.settle()

    def settle(self) -> bool:
        """Write the indexes to their ends and let go of the files; whether the disk took all of it."""
        is_whole = True
        for segment in self._segments:
            is_last = segment is self._segments[-1]
            try:
                if is_last and segment.max_timestamp != UNKNOWN_TIMESTAMP:
                    segment.index_time()
                segment.flush_indexes()
            except OSError:
                is_whole = False
            segment.close_file()
        return is_whole

    def forget_files(self) -> None:
        """Close without writing, for good: the log is deleted, or a test pretends that the process died."""
        self._forgotten = True
        self._active = None
        for segment in self._segments:
            segment.close_file()
        self._segments = []
