"""A stored batch with some of its records removed, as log compaction writes it.

Offsets, sequence numbers and producer do not change, so the batch keeps its place, and the state of its producer can
still be read from it even when no record is left. Records are copied as bytes; only the fields before the value are
read.

The delete horizon (KIP-534) is the time until which a batch keeps its tombstones, or a marker whose transaction has no
data left. The first cleaning of such a batch stores it as the base timestamp and sets bit 6 of the attributes. The
timestamps of the records then count from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.protocol.batch import (
    CHECKED_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Corrupt,
    Truncated,
    encode_varint,
)
from fencepost.protocol.crc import crc32c
from fencepost.protocol.records import MAX_INT64, MIN_INT64, check_place, compress, decode_varint


class Skimmed(NamedTuple):
    """One record of a batch's uncompressed payload: its place, and the fields that decide whether it stays."""

    start: int
    after_timestamp: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def skim(header: BatchHeader, payload: bytes) -> Iterator[Skimmed]:
    """Each record of a batch with this uncompressed payload. Raises Corrupt where there is no valid record."""
    count, base_timestamp, last_offset_delta = header.record_count, header.base_timestamp, header.last_offset_delta
    pos = 0
    try:
        for n in range(count):
            start = pos
            length, pos = _varint(payload, pos)
            end = pos + length
            if length < 0 or end > len(payload):
                raise Truncated(f"record {n}", need=length, have=len(payload) - pos, at=start)
            timestamp_delta, after_timestamp = _varint(payload, pos + 1)
            offset_delta, pos = _varint(payload, after_timestamp)
            key_length, pos = _varint(payload, pos)
            key = None
            if key_length >= 0:
                key = payload[pos : pos + key_length]
                pos += key_length
            value_length, pos = _varint(payload, pos)
            if pos > end:
                raise Truncated(f"record {n}", need=pos - start, have=end - start, at=start)
            timestamp = base_timestamp + timestamp_delta
            if not (MIN_INT64 <= timestamp <= MAX_INT64 and 0 <= offset_delta <= last_offset_delta):
                check_place(header, timestamp, offset_delta, n, start)
            yield Skimmed(start, after_timestamp, end, timestamp_delta, offset_delta, key, value_length >= 0)
            pos = end
    except IndexError:
        raise Truncated("record", need=pos + 1, have=len(payload), at=pos) from None
    if pos != len(payload):
        raise Corrupt(f"{len(payload) - pos} bytes are left after {count} records", at=pos)


def _varint(buf: bytes, pos: int) -> tuple[int, int]:
    byte = buf[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return decode_varint(buf, pos)


def delete_horizon(header: BatchHeader) -> int | None:
    """Until when the tombstones, or the marker, of a batch stay; None if no cleaning has set a time yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def keep_records(header: BatchHeader, payload: bytes, kept: Sequence[Skimmed], horizon: int | None) -> bytes:
    """The batch with only the records `kept` of its uncompressed payload.

    With `horizon`, which must not have been set before, the batch gets this delete horizon. Raises Corrupt if the
    timestamp of a record is too far from it.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if horizon is None:
        records = [payload[record.start : record.end] for record in kept]
    else:
        attributes |= DELETE_HORIZON
        records = [_moved(payload, record, base_timestamp - horizon) for record in kept]
        base_timestamp = horizon
    max_timestamp = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in kept)
    data = compress(attributes & CODEC_MASK, b"".join(records))
    return _assemble(header, attributes, base_timestamp, max_timestamp, len(kept), data)


def _moved(payload: bytes, record: Skimmed, by: int) -> bytes:
    timestamp_delta = record.timestamp_delta + by
    if not MIN_INT64 <= timestamp_delta <= MAX_INT64:
        raise Corrupt(f"a record would have timestamp delta {timestamp_delta}", at=record.start)
    body = b"".join((b"\0", encode_varint(timestamp_delta), payload[record.after_timestamp : record.end]))
    return encode_varint(len(body)) + body


def keep_no_records(header: BatchHeader) -> bytes:
    """The batch as a header alone, which keeps its offsets and its producer."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _assemble(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _assemble(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, data: bytes
) -> bytes:
    head = HEADER.pack(
        header.base_offset,
        HEADER_BYTES - PREFIX_BYTES + len(data),
        header.leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    checked = head[CHECKED_AT:] + data
    return head[:CRC_AT] + crc32c(checked).to_bytes(4, "big") + checked
