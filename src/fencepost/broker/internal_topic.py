"""Reads an internal topic's partition back from its first record to its last, for the coordinators' loading."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.machines.partition import Partition
from fencepost.protocol.batch import CONTROL, HEADER, PREFIX_BYTES, BatchHeader, Marker, decode_marker
from fencepost.protocol.records import Record, decode_varint, iter_batches, iter_records

READ_BYTES = 1 << 20

_SHAPE = struct.Struct(">8xi9xh34xi")  # Length, attributes, record count.
assert _SHAPE.size == HEADER.size
_NO_DELTAS = bytes(3)  # Attributes, timestamp delta and offset delta of a batch's first record.
_NULL = 1  # The length of a key that is not there, -1, as a varint.


class LoadedBatch(NamedTuple):
    header: BatchHeader
    marker: Marker | None
    records: list[Record]


def load_batches(partition: Partition) -> Iterator[LoadedBatch]:
    offset = partition.log.start_offset
    while offset < partition.log.end_offset:
        chunk = partition.log.read(offset, READ_BYTES, partition.log.end_address)
        for header, batch in iter_batches(chunk):
            offset = header.last_offset + 1
            if header.is_control:
                yield LoadedBatch(header, decode_marker(batch), [])
            else:
                yield LoadedBatch(header, None, list(iter_records(batch)))


def latest_values(partition: Partition) -> dict[bytes, bytes | None]:
    """The last value of every key.

    A busy coordinator leaves many records for each id, and a restart must not wait until all of them are decoded: of
    a batch as coordinators write them, plain and with one record, only the key is looked at.
    """
    latest: dict[bytes, bytes | None] = {}
    log = partition.log
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = log.read(offset, READ_BYTES, log.end_address)
        places: dict[bytes, int] = {}  # Where in the chunk the last value of each key begins.
        pos = last = 0
        while pos < len(chunk):
            last = pos
            length, attributes, count = _SHAPE.unpack_from(chunk, pos)
            at = pos + HEADER.size
            pos += PREFIX_BYTES + length
            while chunk[at] > 127:  # The record's length.
                at += 1
            if attributes or count != 1 or chunk[at + 1 : at + 4] != _NO_DELTAS:
                _take_values(chunk, places, latest)
                if not attributes & CONTROL:
                    latest.update((r.key, r.value) for r in iter_records(chunk[last:pos]) if r.key is not None)
                continue
            at += 4
            key_length = chunk[at] >> 1
            at += 1
            if chunk[at - 1] > 127 or chunk[at - 1] == _NULL:
                key_length, at = decode_varint(chunk, at - 1)
                if key_length < 0:
                    continue
            places[chunk[at : at + key_length]] = at + key_length
        _take_values(chunk, places, latest)
        offset = BatchHeader._make(HEADER.unpack_from(chunk, last)).last_offset + 1
    return latest


def _take_values(chunk: bytes, places: dict[bytes, int], latest: dict[bytes, bytes | None]) -> None:
    for key, at in places.items():
        length, at = decode_varint(chunk, at)
        latest[key] = None if length < 0 else chunk[at : at + length]
    places.clear()
