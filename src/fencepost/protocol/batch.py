"""The v2 record batch: its header, its checksum, and the few batches that a broker writes itself.

A broker stores a client's batch as the bytes that arrived. It reads the header, verifies the checksum, and stamps base
offset and leader epoch, which the checksum does not cover. `records.py` reads the records inside. The constants of the
layout of a batch are here, so that other files need no numbers of their own.

    Corrupt            the bytes are not a batch; the message names the place, the expected value and the found one
    +-- Truncated      the bytes end too early
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from fencepost.protocol.crc import crc32c

Buffer = bytes | bytearray | memoryview
# A part of an answer. Records that are sent in place are a view of their file (`Log.read_in_place`).
Part = bytes | memoryview

# The whole header, and parts of it for code that needs no more.
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 61
UNCHECKED_HEADER = struct.Struct(">qiibI")
CHECKED_HEADER = struct.Struct(">hiqqqhii")
PRODUCER = struct.Struct(">qh")  # Its id and epoch, at PRODUCER_AT.
# Base offset, length, magic, crc, attributes, last offset delta and max timestamp.
WALKED_HEADER = struct.Struct(">qi4xbIhi8xq")
# Base offset and length come before the bytes that the length counts.
PREFIX_BYTES = 12
LENGTH_AT = 8
MAGIC_AT = 16
CRC_AT = 17
# The checksum begins at the attributes: it leaves out the leader epoch, so a broker can stamp that.
CHECKED_AT = 21
ATTRIBUTES_AT = 22  # The low byte, which has all the bits below.
PRODUCER_AT = 43
LEADER_EPOCH = slice(12, 16)
MAX_TIMESTAMP = slice(35, 43)
PRODUCER_ID = slice(43, 51)
NO_PRODUCER_ID = b"\xff" * 8  # In place of a producer id, in a batch without a producer.
MAGIC = 2
LEAST_LENGTH = HEADER_BYTES - PREFIX_BYTES  # The length field of a batch without records.
# Of the batches and messages of every magic: the bytes up to the magic, and the smallest length field.
UP_TO_MAGIC_BYTES = MAGIC_AT + 1
LEAST_LENGTH_OF_ANY_MAGIC = 14

# Where `HEADER.unpack` puts a field, for loops that are too hot to make a `BatchHeader` of every batch.
BASE_OFFSET_FIELD = 0
LENGTH_FIELD = 1
CRC_FIELD = 4
ATTRIBUTES_FIELD = 5
LAST_OFFSET_DELTA_FIELD = 6
MAX_TIMESTAMP_FIELD = 8
PRODUCER_ID_FIELD = 9
PRODUCER_EPOCH_FIELD = 10
RECORD_COUNT_FIELD = 12

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

ABORT_MARKER = 0
COMMIT_MARKER = 1
NO_TIMESTAMP = -1
MAX_SEQUENCE = 2**31 - 1
MAX_PRODUCER_EPOCH = 2**15 - 1
# Length, attributes, timestamp and offset deltas, key and value lengths, header count: a byte each.
SMALLEST_RECORD_BYTES = 7
SMALLEST_BATCH_BYTES = HEADER_BYTES + SMALLEST_RECORD_BYTES
NO_DELTAS = bytes(3)  # Attributes, timestamp delta and offset delta of a batch's first record.
NEGATIVE = 1  # The sign bit of a varint.
NULL_LENGTH = 1  # -1 as a varint: the length of a null key or value.
MARKER_ATTRIBUTES = TRANSACTIONAL | CONTROL
MARKER_KEY = (
    b"\x08\0\0\0"  # Of a marker's record: the length of its key, 4, the version and the first byte of the type.
)

_UNCHECKED_LENGTH = CHECKED_AT - PREFIX_BYTES  # What the length counts besides the bytes under the checksum.
_STAMP = struct.Struct(">qii")
_INT32 = struct.Struct(">i")


class Corrupt(ValueError):
    """The bytes are not a valid batch."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(f"{problem} (at byte {at})")
        self.at = at


class Truncated(Corrupt):
    """The bytes end before the thing that they begin."""

    def __init__(self, what: str, need: int, have: int, at: int) -> None:
        super().__init__(f"{what} needs {need} bytes, there are {have}", at)
        self.need = need
        self.have = have


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return advance_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0


class Marker(NamedTuple):
    """A control batch that ends a transaction."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    offset: int
    timestamp: int


def advance_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` records later. After 2^31-1 comes 0; no sequence (-1) stays none."""
    if sequence < 0:
        return sequence
    return (sequence + by) & MAX_SEQUENCE


def decode_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Decode the header at `pos`. The records need not be there, and the checksum is not verified."""
    if len(buf) - pos < HEADER_BYTES:
        raise Truncated("batch header", need=HEADER_BYTES, have=len(buf) - pos, at=pos)
    header = BatchHeader._make(HEADER.unpack_from(buf, pos))
    if header.magic != MAGIC:
        raise Corrupt(f"magic is {header.magic}, expected {MAGIC}", at=pos + MAGIC_AT)
    if header.length < LEAST_LENGTH:
        raise Corrupt(f"length is {header.length}, a header alone has {LEAST_LENGTH}", at=pos + LENGTH_AT)
    return header


def decode_batch(buf: Buffer, pos: int = 0) -> tuple[BatchHeader, int]:
    """Decode the header of the whole batch at `pos` and verify the checksum; return it and where the batch ends."""
    header = decode_header(buf, pos)
    end = pos + PREFIX_BYTES + header.length
    if end > len(buf):
        raise Truncated("batch", need=end - pos, have=len(buf) - pos, at=pos)
    crc = crc32c(memoryview(buf)[pos + CHECKED_AT : end])
    if crc != header.crc:
        raise Corrupt(f"crc is {crc:#010x}, the header says {header.crc:#010x}", at=pos + CRC_AT)
    return header, end


def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The batch as it is stored: with its offset and the leader's epoch, both outside the checksum."""
    return _STAMP.pack(base_offset, len(batch) - PREFIX_BYTES, leader_epoch) + memoryview(batch)[MAGIC_AT:]


def is_writable(batch: Buffer) -> TypeGuard[memoryview]:
    """Whether the batch is part of a large request, which is stored from the memory that it arrived in."""
    return type(batch) is memoryview and not batch.readonly


def stamp_in_place(batch: memoryview, base_offset: int, leader_epoch: int) -> memoryview:
    """Like `stamp`, without a copy."""
    _STAMP.pack_into(batch, 0, base_offset, len(batch) - PREFIX_BYTES, leader_epoch)
    return batch


def stamp_append_time(batch: Buffer, base_offset: int, leader_epoch: int, now_ms: int) -> memoryview:
    """Like `stamp`, for a topic with LogAppendTime. The checksum covers the time, so it is computed again.

    A writable batch is stamped in place.
    """
    out = batch if is_writable(batch) else memoryview(bytearray(batch))
    _STAMP.pack_into(out, 0, base_offset, len(batch) - PREFIX_BYTES, leader_epoch)
    out[ATTRIBUTES_AT] |= LOG_APPEND_TIME
    out[MAX_TIMESTAMP] = now_ms.to_bytes(8, "big", signed=True)
    out[CRC_AT:CHECKED_AT] = crc32c(out[CHECKED_AT:]).to_bytes(4, "big")
    return out


# A marker's record varies only in its type and the coordinator epoch, so both kinds are laid out once:
# length 16, attributes, two deltas; a key of 4 bytes: version 0 and the type; a value of 6: version 0 and
# the epoch.
_MARKER = struct.Struct(CHECKED_HEADER.format + "12sib")
_MARKER_RECORDS = (b"\x20\0\0\0\x08\0\0\0\0\x0c\0\0", b"\x20\0\0\0\x08\0\0\0\1\x0c\0\0")
_MARKER_LENGTH = _MARKER.size + _UNCHECKED_LENGTH


def encode_marker(
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction on one partition."""
    record = _MARKER_RECORDS[commit]
    checked = _MARKER.pack(
        MARKER_ATTRIBUTES, 0, now_ms, now_ms, producer_id, producer_epoch, -1, 1, record, coordinator_epoch, 0
    )  # fmt: skip
    return UNCHECKED_HEADER.pack(base_offset, _MARKER_LENGTH, leader_epoch, MAGIC, crc32c(checked)) + checked


def decode_marker(batch: Buffer, pos: int = 0) -> Marker | None:
    """The marker in the control batch at `pos`; None if the batch is of another kind, or emptied by compaction."""
    header = decode_header(batch, pos)
    if not header.is_control or header.record_count == 0:
        return None
    # Control records are never compressed, and all sizes but one fit one byte; a version above 0 may lengthen the
    # value, but not move what version 0 has.
    record = pos + HEADER_BYTES
    at = record + 2
    while at < len(batch) and batch[at] > 0x7F:
        at += 1  # The timestamp of a marker that the cleaner has touched is far from that of its batch.
    at += 2
    if len(batch) < at + 13:
        raise Truncated("control record", need=at + 13 - record, have=len(batch) - record, at=record)
    if batch[at] != 8:
        raise Corrupt(f"control record key has length {batch[at] >> 1}, expected 4", at=at)
    kind = int.from_bytes(batch[at + 3 : at + 5], "big")
    if kind not in (ABORT_MARKER, COMMIT_MARKER):
        return None
    (coordinator_epoch,) = _INT32.unpack_from(batch, at + 8)
    return Marker(
        header.producer_id,
        header.producer_epoch,
        kind == COMMIT_MARKER,
        coordinator_epoch,
        header.base_offset,
        header.max_timestamp,
    )


def encode_varint(value: int) -> bytes:
    """A signed integer in zigzag form, seven bits a byte."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Nearly every length in an internal topic's record is one of these. The last one is -1: null.
_SMALL = [encode_varint(n) for n in range(2048)] + [encode_varint(-1)]


def _varint(value: int) -> bytes:
    return _SMALL[value] if value < 2048 else encode_varint(value)


def encode_record(key: bytes | None, value: bytes | None, offset_delta: int = 0) -> bytes:
    """One record at the batch's base timestamp, without headers."""
    # -1 for null is also the index of its varint.
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    body = b"".join(
        (
            b"\0\0",
            _varint(offset_delta),
            _varint(key_length),
            key or b"",
            _varint(value_length),
            value or b"",
            b"\0",
        )
    )
    return _varint(len(body)) + body


def encode_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    now_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """An uncompressed batch of (key, value) pairs, all with the timestamp `now_ms`, from offset 0 on."""
    assert records, "a batch has at least one record"
    if len(records) == 1:
        payload = encode_record(*records[0])
    else:
        payload = b"".join([encode_record(key, value, i) for i, (key, value) in enumerate(records)])
    return assemble(
        payload,
        len(records),
        TRANSACTIONAL if transactional else 0,
        now_ms,
        now_ms,
        producer_id,
        producer_epoch,
        base_sequence,
    )


def encode_stored_record(
    key: bytes | None, value: bytes | None, now_ms: int, base_offset: int, leader_epoch: int
) -> bytes:
    """One plain record as a stored batch. A coordinator writes three of them for each transaction."""
    checked = CHECKED_HEADER.pack(0, 0, now_ms, now_ms, -1, -1, -1, 1) + encode_record(key, value)
    return (
        UNCHECKED_HEADER.pack(base_offset, len(checked) + _UNCHECKED_LENGTH, leader_epoch, MAGIC, crc32c(checked))
        + checked
    )


def assemble(
    payload: bytes,
    record_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Put the header before records that are already encoded, and compressed if `attributes` say so."""
    checked = (
        CHECKED_HEADER.pack(
            attributes,
            record_count - 1,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
        + payload
    )
    return UNCHECKED_HEADER.pack(0, len(checked) + _UNCHECKED_LENGTH, 0, MAGIC, crc32c(checked)) + checked
