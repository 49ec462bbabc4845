"""Log compaction: the last record of every key is kept, and markers are removed after the data of their transactions.

One round reads the closed segments of a log twice: first the dirty ones, for the last offset of every key, then all
of them, to write the batches that are kept. It follows Kafka's Cleaner (KIP-98, KIP-534):

    a record            is kept if no later one has its key; a tombstone is then kept for `delete.retention.ms`
    an aborted record   is removed, and does not remove an earlier record of its key
    a marker            is kept while a batch of its transaction is, and for `delete.retention.ms` after that
    a batch             keeps its offsets. The last batch of a producer is kept even without records; so are a
                        producer's last marker, if it has no batch, and the last batch of each new segment

Nothing at or above the last stable offset changes. A round is a generator that yields after every small piece of work,
because it runs between the broker's requests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from fencepost.machines.log.interface import AbortedTxn, Log, Rewrite, StorageFailed
from fencepost.machines.partition.producers import Producer
from fencepost.protocol.batch import (
    ATTRIBUTES_FIELD,
    BASE_OFFSET_FIELD,
    CHECKED_AT,
    CRC_FIELD,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_FIELD,
    LEAST_LENGTH,
    LENGTH_FIELD,
    MARKER_ATTRIBUTES,
    MAX_TIMESTAMP,
    NEGATIVE,
    NO_DELTAS,
    PREFIX_BYTES,
    PRODUCER_EPOCH_FIELD,
    PRODUCER_ID_FIELD,
    RECORD_COUNT_FIELD,
    TRANSACTIONAL,
    BatchHeader,
    Corrupt,
    decode_marker,
)
from fencepost.protocol.crc import crc32c
from fencepost.protocol.filtering import Skimmed, delete_horizon, keep_no_records, keep_records, skim
from fencepost.protocol.records import uncompressed_records

# Between two yields: half a millisecond of work.
SLICE_BYTES = 32 << 10
SLICE_RECORDS = 256
MAX_SEGMENT_OFFSETS = 2**31 - 1
LONG_KEY_BYTES = 64

_UNKNOWN_PRODUCER = (-1, -1)

Work = Generator[None, None, None]


class Dirt(NamedTuple):
    """The segments to clean in a log. `until` is the base offset of the first segment that cannot be cleaned."""

    first_dirty_offset: int
    until: int
    clean_bytes: int
    dirty_bytes: int
    oldest_ms: int  # The first timestamp of the oldest dirty segment; -1 if it has none.

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


class Policy(NamedTuple):
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    max_keys: int = 1 << 19
    # Whether a marker is kept after its data. A reader may have read the data and not yet the marker.
    keeps_markers: bool = True


def find_dirt(log: Log, limit_offset: int, min_lag_ms: int, now_ms: int) -> Dirt:
    """Closed segments below `limit_offset`, the last stable offset, whose records are all older than the lag."""
    segments = log.segments()
    if not segments:
        return Dirt(0, 0, 0, 0, -1)
    first, until = log.clean_offset, segments[0].base_offset
    if not log.start_offset <= first <= log.end_offset:
        first = until
    clean_bytes = dirty_bytes = 0
    oldest_ms = -1
    for segment, following in pairwise(segments):
        if following.base_offset > limit_offset:
            break
        if following.base_offset <= first:
            clean_bytes += segment.size
        else:
            if min_lag_ms > 0 and segment.largest_timestamp() > now_ms - min_lag_ms:
                break
            if not dirty_bytes:
                oldest_ms = segment.first_timestamp()
            dirty_bytes += segment.size
        until = following.base_offset
    return Dirt(first, until, clean_bytes, dirty_bytes, oldest_ms)


def compact(log: Log, dirt: Dirt, producers: Mapping[int, Producer], policy: Policy, now_ms: int) -> Work:
    """Clean the log up to `dirt.until`. Raises StorageFailed; then a part of it may be done."""
    keys = _Keys(log, dirt, policy.max_keys)
    yield from keys.collect()
    round_ = _Round(log, keys, producers, policy, now_ms)
    for group in _groups(log, keys.until, policy.segment_bytes):
        yield from round_.clean(group)
        if round_.failed:
            return
    log.note_clean(keys.until)


def _groups(log: Log, until: int, segment_bytes: int) -> list[list[int]]:
    """Runs of segments that fit into one. A run is the base offsets of its segments, and the offset where it ends."""
    groups: list[list[int]] = []
    room = 0
    for segment, following in pairwise(list(log.segments())):
        if segment.base_offset >= until:
            break
        fits = groups and segment.size <= room and following.base_offset - groups[-1][0] <= MAX_SEGMENT_OFFSETS
        if fits:
            groups[-1].append(following.base_offset)
        else:
            groups.append([segment.base_offset, following.base_offset])
            room = segment_bytes
        room -= segment.size
    return groups


def _short_key(key: bytes) -> bytes:
    """The key, or its digest if it is long. A digest has LONG_KEY_BYTES bytes, so it is never taken for a key."""
    return key if len(key) < LONG_KEY_BYTES else blake2b(key).digest()


def _size_of(fields: tuple[int, ...]) -> int:
    """The size of the batch with this header, which may be damaged: a loop over batches must make progress."""
    length = fields[LENGTH_FIELD]
    if length < LEAST_LENGTH:
        raise StorageFailed(f"the batch at offset {fields[BASE_OFFSET_FIELD]} is damaged: its length is {length}")
    return PREFIX_BYTES + length


def _max_timestamp(batch: bytes) -> int:
    return int.from_bytes(batch[MAX_TIMESTAMP], "big", signed=True)


def _check_progress(offset: int, after: int) -> int:
    """Check that the next offset to read is greater than the last one: damaged headers could cause an endless loop."""
    if after <= offset:
        raise StorageFailed(f"the batches at offset {offset} are damaged: they end at offset {after}")
    return after


class _Aborted:
    """Which transactions were aborted. The methods must be called in the order of the log."""

    def __init__(self, log: Log) -> None:
        self.is_empty = True
        self._log = log
        self._begins: list[tuple[int, AbortedTxn]] = []  # A heap of the aborted transactions that begin later.
        self._known: set[int] = set()
        self._open: dict[int, AbortedTxn] = {}

    def load(self, from_offset: int, until: int) -> None:
        """Add the transactions with data between these offsets."""
        for entry in self._log.aborted(from_offset, until):
            if entry.last_offset not in self._known:
                self.is_empty = False
                self._known.add(entry.last_offset)
                heappush(self._begins, (entry.first_offset, entry))

    def find(self, producer_id: int, base_offset: int, last_offset: int) -> AbortedTxn | None:
        """The aborted transaction that a batch of this producer belongs to."""
        while self._begins and self._begins[0][0] <= last_offset:
            entry = heappop(self._begins)[1]
            self._open[entry.producer_id] = entry
        found = self._open.get(producer_id)
        return found if found is not None and base_offset <= found.last_offset else None

    def end(self, producer_id: int, offset: int) -> AbortedTxn | None:
        """The aborted transaction that the marker at `offset` ends."""
        if self.is_empty:
            return None
        found = self.find(producer_id, offset, offset)
        self._open.pop(producer_id, None)
        self._known.discard(offset)
        return found


class _Keys:
    """The last offset of every key in the dirty part of a log, as far as there is room for them."""

    def __init__(self, log: Log, dirt: Dirt, max_keys: int) -> None:
        self.first_dirty_offset = dirt.first_dirty_offset
        self.until = dirt.until  # Where the collected part ends.
        self.last_offsets: dict[bytes, int] = {}
        self.unreadable: set[int] = set()  # Base offsets of batches that cannot be decoded; they are kept.
        self._log = log
        self._max_keys = max_keys
        self._aborted = _Aborted(log)

    def collect(self) -> Work:
        bases = [segment.base_offset for segment in self._log.segments()]
        for base, end in pairwise(base for base in bases if base <= self.until):
            if end <= self.first_dirty_offset:
                continue
            self._aborted.load(base, end)
            offset = max(base, self.first_dirty_offset)
            while offset < end:
                chunk = self._log.read(offset, SLICE_BYTES, self._log.end_address)
                offset = _check_progress(offset, (yield from self._take(chunk, end)))
                yield
                if self.until < end:
                    return

    def _take(self, chunk: bytes, end: int) -> Generator[None, None, int]:
        """Collect the keys of some batches; return the offset after them. `until` becomes where the room ends."""
        last_offsets = self.last_offsets
        unpack = HEADER.unpack_from
        view = memoryview(chunk)
        pos = 0
        offset = end
        while pos < len(chunk):
            start = pos
            fields = unpack(chunk, pos)
            base_offset, attributes = fields[BASE_OFFSET_FIELD], fields[ATTRIBUTES_FIELD]
            count = fields[RECORD_COUNT_FIELD]
            if base_offset >= end:
                return end
            if len(last_offsets) >= self._max_keys:
                self.until = base_offset
                return end
            at = pos + HEADER_BYTES
            pos += _size_of(fields)
            offset = base_offset + fields[LAST_OFFSET_DELTA_FIELD] + 1
            if crc32c(view[start + CHECKED_AT : pos]) != fields[CRC_FIELD]:
                self.unreadable.add(base_offset)  # It is kept as it is, and removes no earlier record.
                continue
            if count == 1 and (attributes == 0 or (attributes == TRANSACTIONAL and self._aborted.is_empty)):
                # As coordinators write them: one record. Only its key is decoded.
                while at < pos and chunk[at] > 127:  # The record's length.
                    at += 1
                at += 5
                # A client may have written anything: a record of any other form is decoded in full.
                if at < pos and chunk[at - 4 : at - 1] == NO_DELTAS:
                    key_length = chunk[at - 1]
                    end_of_key = at + (key_length >> 1)
                    if key_length <= 127 and not key_length & NEGATIVE and end_of_key < pos:
                        last_offsets[chunk[at:end_of_key]] = base_offset
                        continue
            yield from self._take_batch(BatchHeader._make(fields), chunk[start:pos])
        return offset

    def _take_batch(self, header: BatchHeader, batch: bytes) -> Work:
        if header.is_control:
            self._aborted.end(header.producer_id, header.last_offset)
            return
        if header.is_transactional and self._aborted.find(header.producer_id, header.base_offset, header.last_offset):
            return
        try:
            payload = uncompressed_records(header, batch)
            for n, record in enumerate(skim(header, payload)):
                offset = header.base_offset + record.offset_delta
                if record.key is not None and offset >= self.first_dirty_offset:
                    self.last_offsets[_short_key(record.key)] = offset
                if n % SLICE_RECORDS == SLICE_RECORDS - 1:
                    yield
        except Corrupt:
            self.unreadable.add(header.base_offset)


class _Round:
    """Writes the cleaned segments, from the first to the last, so that data is removed before its marker."""

    def __init__(self, log: Log, keys: _Keys, producers: Mapping[int, Producer], policy: Policy, now_ms: int) -> None:
        self.failed = False
        self._log = log
        self._until = keys.until
        self._first_dirty_offset = keys.first_dirty_offset
        self._last_offsets = keys.last_offsets
        self._latest = keys.unreadable.union(keys.last_offsets.values())
        # Each producer's last offset, -1 if it has no batch, and its epoch, which then only its last marker has.
        self._producers = {
            producer_id: (producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
            for producer_id, producer in producers.items()
        }
        self._policy = policy
        self._now_ms = now_ms
        self._horizon_ms = now_ms + policy.delete_retention_ms
        self._aborted = _Aborted(log)
        self._has_data: set[int] = set()  # Producers with a kept batch in their current transaction.
        self._is_changed = False

    def clean(self, group: list[int]) -> Work:
        """Replace the segments of one group by one segment."""
        rewrite = self._log.rewrite(group[0], group[-1])
        self._is_changed = len(group) > 2
        try:
            for base, end in pairwise(group):
                self._aborted.load(base, end)
                offset = base
                while offset < end:
                    chunk = self._log.read(offset, SLICE_BYTES, self._log.end_address)
                    offset = _check_progress(offset, (yield from self._copy(chunk, end, group[-1], rewrite)))
                    yield
            if not self._is_changed:
                return
            swapped: list[bool] = []
            rewrite.finish(swapped.append)
            while not swapped:
                yield
            self.failed = not swapped[0]
        finally:
            rewrite.abandon()

    def _copy(self, chunk: bytes, end: int, group_end: int, rewrite: Rewrite) -> Generator[None, None, int]:
        """Write the part of some batches that is kept; return the offset after them."""
        unpack = HEADER.unpack_from
        pos = 0
        offset = end
        while pos < len(chunk):
            start = pos
            fields = unpack(chunk, pos)
            if fields[BASE_OFFSET_FIELD] >= end:
                return end
            pos += _size_of(fields)
            offset = fields[BASE_OFFSET_FIELD] + fields[LAST_OFFSET_DELTA_FIELD] + 1
            is_last = offset == group_end
            if not is_last and self._is_removed(fields):
                self._is_changed = True
                continue
            header = BatchHeader._make(fields)
            batch = chunk[start:pos]
            kept: bytes | None
            if crc32c(memoryview(batch)[CHECKED_AT:]) != header.crc:
                kept = batch  # Damaged: to remove it, or to give it a new checksum, would hide that.
                self._has_data.add(header.producer_id)  # So that its marker stays too.
            elif header.is_control:
                kept = self._sift_marker(header, batch, is_last, rewrite)
            else:
                kept = yield from self._sift_data(header, batch, is_last)
            if kept is not batch:
                self._is_changed = True
            if kept is not None:
                rewrite.append(kept, offset - 1, _max_timestamp(kept))
        return offset

    def _is_removed(self, fields: tuple[int, ...]) -> bool:
        """Whether a batch as coordinators write them (one record, or a marker) is removed, by its header alone."""
        base_offset, attributes = fields[BASE_OFFSET_FIELD], fields[ATTRIBUTES_FIELD]
        producer_id = fields[PRODUCER_ID_FIELD]
        if attributes == 0 or attributes == TRANSACTIONAL:
            return (
                fields[RECORD_COUNT_FIELD] == 1
                and fields[LAST_OFFSET_DELTA_FIELD] == 0
                and base_offset not in self._latest
                and self._first_dirty_offset <= base_offset < self._until
                and (producer_id < 0 or self._producers.get(producer_id, _UNKNOWN_PRODUCER)[0] != base_offset)
            )
        return (
            attributes == MARKER_ATTRIBUTES
            and not self._policy.keeps_markers
            and self._aborted.is_empty
            and producer_id not in self._has_data
            and self._producers.get(producer_id) != (-1, fields[PRODUCER_EPOCH_FIELD])
        )

    def _sift_marker(self, header: BatchHeader, batch: bytes, is_last: bool, rewrite: Rewrite) -> bytes | None:
        producer_id = header.producer_id
        aborted = self._aborted.end(producer_id, header.last_offset)
        if producer_id in self._has_data:
            self._has_data.discard(producer_id)
            if aborted is not None:
                rewrite.append_aborted(aborted)
            return batch
        if is_last or decode_marker(batch) is None or self._producers.get(producer_id) == (-1, header.producer_epoch):
            return batch
        if not self._policy.keeps_markers:
            return None
        horizon_ms = delete_horizon(header)
        if horizon_ms is None:
            payload = uncompressed_records(header, batch)
            return keep_records(header, payload, list(skim(header, payload)), self._horizon_ms)
        return None if horizon_ms <= self._now_ms else batch

    def _sift_data(self, header: BatchHeader, batch: bytes, is_last: bool) -> Generator[None, None, bytes | None]:
        producer_id = header.producer_id
        last_of_producer = self._producers.get(producer_id, _UNKNOWN_PRODUCER)[0]
        is_needed = is_last or (producer_id >= 0 and last_of_producer == header.last_offset)
        is_aborted = header.is_transactional and self._aborted.find(producer_id, header.base_offset, header.last_offset)
        kept: bytes | None
        if is_aborted:
            kept = _emptied(header, batch) if is_needed else None
        elif header.base_offset >= self._until:
            kept = batch
        else:
            kept = yield from self._sift_records(header, batch, is_needed)
        if kept is not None and header.is_transactional:
            self._has_data.add(producer_id)
        return kept

    def _sift_records(self, header: BatchHeader, batch: bytes, is_needed: bool) -> Generator[None, None, bytes | None]:
        try:
            payload = uncompressed_records(header, batch)
            kept: list[Skimmed] = []
            horizon_ms = delete_horizon(header)
            has_tombstones = False
            for n, record in enumerate(skim(header, payload)):
                if self._is_kept(record, header.base_offset, horizon_ms):
                    kept.append(record)
                    has_tombstones = has_tombstones or not record.has_value
                if n % SLICE_RECORDS == SLICE_RECORDS - 1:
                    yield
            sets_horizon = has_tombstones and horizon_ms is None
            if len(kept) == header.record_count and not sets_horizon and (kept or is_needed):
                return batch
            if kept:
                return keep_records(header, payload, kept, self._horizon_ms if sets_horizon else None)
        except Corrupt:
            return batch
        return _emptied(header, batch) if is_needed else None

    def _is_kept(self, record: Skimmed, base_offset: int, horizon_ms: int | None) -> bool:
        if record.key is None:
            return False  # Kafka: a compacted log keeps no record without a key.
        if self._last_offsets.get(_short_key(record.key), -1) > base_offset + record.offset_delta:
            return False
        return record.has_value or horizon_ms is None or self._now_ms < horizon_ms


def _emptied(header: BatchHeader, batch: bytes) -> bytes:
    return keep_no_records(header) if header.record_count else batch
