"""Reads a partition of an internal topic from its first record to its last and finds the last record of each key.

A busy coordinator leaves many records for each key, and a restart must not wait until all of them are decoded. So
only keys are read here, and the coordinator decodes the last records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.machines.log.damage import find_damage
from fencepost.machines.partition.partition import Partition
from fencepost.protocol.batch import (
    ATTRIBUTES_FIELD,
    BASE_OFFSET_FIELD,
    CHECKED_AT,
    COMMIT_MARKER,
    CRC_FIELD,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_FIELD,
    LENGTH_FIELD,
    MARKER_ATTRIBUTES,
    MARKER_KEY,
    NO_DELTAS,
    NULL_LENGTH,
    PREFIX_BYTES,
    PRODUCER_ID_FIELD,
    RECORD_COUNT_FIELD,
    TRANSACTIONAL,
    BatchHeader,
    Corrupt,
    Truncated,
    decode_marker,
)
from fencepost.protocol.crc import crc32c
from fencepost.protocol.records import decode_varint, iter_records

READ_BYTES = 1 << 20
# Is called for every record outside a transaction: its key, the buffer that holds its value (None for a tombstone),
# and where in the buffer the value begins.
EachRecord = Callable[[bytes, bytes | None, int], None]


class LatestRecord(NamedTuple):
    offset: int
    value: bytes


class LatestRecords:
    """The last record of every key that has not been deleted, and the records of open transactions.

    A transaction's records count from its commit marker on, and only if no later record has the same key. A tombstone
    also removes what an open transaction wrote before it.
    """

    def __init__(self) -> None:
        self.by_key: dict[bytes, LatestRecord] = {}
        self.pending: dict[int, dict[bytes, LatestRecord]] = {}  # By producer id.

    def in_order(self) -> list[tuple[bytes, LatestRecord]]:
        return sorted(self.by_key.items(), key=_offset)

    def pending_in_order(self) -> list[tuple[int, bytes, LatestRecord]]:
        return [(pid, *item) for pid, written in self.pending.items() for item in sorted(written.items(), key=_offset)]

    def put(self, key: bytes, value: bytes | None, offset: int, producer_id: int | None) -> None:
        if value is None:
            self.by_key.pop(key, None)
            for written in self.pending.values():
                written.pop(key, None)
        elif producer_id is None:
            self.by_key[key] = LatestRecord(offset, value)
        else:
            self.pending.setdefault(producer_id, {})[key] = LatestRecord(offset, value)

    def end_txn(self, producer_id: int, commit: bool) -> None:
        written = self.pending.pop(producer_id, None)
        if written and commit:
            by_key = self.by_key
            for key, record in written.items():
                if key not in by_key or by_key[key].offset < record.offset:
                    by_key[key] = record


def _offset(item: tuple[bytes, LatestRecord]) -> int:
    return item[1].offset


def load_latest(partition: Partition, each: EachRecord | None = None) -> LatestRecords:
    """Raises CorruptLog if a batch is not the one that was written: a changed offset or state would look valid."""
    found = LatestRecords()
    log = partition.log
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = log.read(offset, READ_BYTES, log.end_address)
        try:
            offset = _load_chunk(chunk, offset, found, each)
        except Corrupt:
            raise find_damage(log, offset) from None
    return found


def _load_chunk(chunk: bytes, next_offset: int, found: LatestRecords, each: EachRecord | None) -> int:
    """Take in whole batches from `next_offset` on, and return the offset after them. Raises Corrupt.

    Batches of one record, which coordinators write most, are read here; `_load_batch` reads all others.
    """
    if not chunk:
        raise Truncated("record batch", need=HEADER_BYTES, have=0, at=0)
    unpack = HEADER.unpack_from
    pending = found.pending
    view = memoryview(chunk)
    pos = 0
    # For the last plain record of each key in this chunk: where its value's length is, and its offset.
    places: dict[bytes, tuple[int, int]] = {}
    while pos < len(chunk):
        start = pos
        at = pos + HEADER_BYTES
        if at > len(chunk):
            raise Truncated("batch header", need=HEADER_BYTES, have=len(chunk) - pos, at=pos)
        fields = unpack(chunk, pos)
        pos += PREFIX_BYTES + fields[LENGTH_FIELD]
        base_offset, attributes = fields[BASE_OFFSET_FIELD], fields[ATTRIBUTES_FIELD]
        if not at <= pos <= len(chunk) or crc32c(view[start + CHECKED_AT : pos]) != fields[CRC_FIELD]:
            raise Corrupt("the batch is not whole", at=start)
        after = base_offset + fields[LAST_OFFSET_DELTA_FIELD] + 1
        if after <= next_offset:
            raise Corrupt(f"the batch ends at offset {after - 1}, expected {next_offset} or more", at=start)
        next_offset = after
        count = fields[RECORD_COUNT_FIELD]
        if count == 1 and (attributes == 0 or attributes == TRANSACTIONAL):
            while chunk[at] > 127:  # The record's length.
                at += 1
            key_length = chunk[at + 4]
            if chunk[at + 1 : at + 4] == NO_DELTAS and key_length < 128 and key_length != NULL_LENGTH:
                key_at = at + 5
                end = key_at + (key_length >> 1)
                if chunk[end] != NULL_LENGTH:
                    if attributes == 0:
                        key = chunk[key_at:end]
                        places[key] = end, base_offset
                        if each is not None:
                            each(key, chunk, decode_varint(chunk, end)[1])
                    else:
                        length, value_at = decode_varint(chunk, end)
                        record = LatestRecord(base_offset, chunk[value_at : value_at + length])
                        pending.setdefault(fields[PRODUCER_ID_FIELD], {})[chunk[key_at:end]] = record
                    continue
        if places:
            _take(chunk, places, found)
        is_marker = attributes == MARKER_ATTRIBUTES and count == 1 and chunk[at + 4 : at + 8] == MARKER_KEY
        if is_marker and chunk[at + 8] <= COMMIT_MARKER:
            found.end_txn(fields[PRODUCER_ID_FIELD], chunk[at + 8] == COMMIT_MARKER)
            continue
        _load_batch(BatchHeader._make(fields), chunk[start:pos], found, each)
    _take(chunk, places, found)
    return next_offset


def _take(chunk: bytes, places: dict[bytes, tuple[int, int]], found: LatestRecords) -> None:
    for key, (at, offset) in places.items():
        length, at = decode_varint(chunk, at)
        found.by_key[key] = LatestRecord(offset, chunk[at : at + length])
    places.clear()


def _load_batch(header: BatchHeader, batch: bytes, found: LatestRecords, each: EachRecord | None) -> None:
    if header.is_control:
        marker = decode_marker(batch)
        if marker is not None:
            found.end_txn(marker.producer_id, marker.commit)
        return
    producer_id = header.producer_id if header.is_transactional else None
    for record in iter_records(batch):
        if record.key is not None:
            found.put(record.key, record.value, record.offset, producer_id)
            if each is not None and producer_id is None:
                each(record.key, record.value, 0)
