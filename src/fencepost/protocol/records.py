"""The records inside a v2 batch, for the code that must look into it: offsets by timestamp, internal topics, tools.

Producing and fetching do not decode records (`produced.py` names the exceptions). Every length is compared with the
bytes that are left, and decompression stops at a limit: a hostile batch ends in Corrupt and cannot take all memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from fencepost.protocol.batch import (
    CHECKED_AT,
    CODECS,
    HEADER_BYTES,
    SMALLEST_RECORD_BYTES,
    BatchHeader,
    Buffer,
    Corrupt,
    Truncated,
    assemble,
    decode_header,
    encode_varint,
)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MAX_UNCOMPRESSED_BYTES = 128 << 20
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
# By the first byte of a record: the size of the record with this byte, or 0 if this byte alone tells no valid size.
_RECORD_BYTES = bytes(
    1 + byte // 2 if byte % 2 == 0 and SMALLEST_RECORD_BYTES - 1 <= byte // 2 < 64 else 0 for byte in range(256)
)
MAX_HEADERS = 1 << 16
# The framing that Kafka's Java clients put around raw snappy blocks: a magic, two versions, sized blocks.
XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER_BYTES = 16
XERIAL_BLOCK_BYTES = 32 * 1024
# Kafka's Java clients read only frames of independent blocks, which the library does not write: magic, flags
# (version 1, independent blocks), block size 64 KiB, and the checksum of these two bytes.
LZ4_FRAME_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_UNCOMPRESSED = 1 << 31


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def decode_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits at `pos`, and where it ends."""
    shift = 0
    value = 0
    at = pos
    try:
        while True:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Corrupt("varint is longer than 10 bytes", at=at)
    except IndexError:
        raise Truncated("varint", need=pos - at + 1, have=pos - at, at=at) from None
    if shift == 63 and byte > 1:
        raise Corrupt("varint has more than 64 bits", at=at)
    return (value >> 1) ^ -(value & 1), pos


def iter_batches(records: Buffer) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Each whole batch of a fetched chunk with its header; one that is cut off at the end is left out."""
    view = memoryview(records)
    pos = 0
    while len(view) - pos >= HEADER_BYTES:
        header = decode_header(view, pos)
        end = pos + header.size_bytes
        if end > len(view):
            return
        yield header, view[pos:end]
        pos = end


def iter_records(batch: Buffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of one whole batch. Raises Corrupt if their number is not the one in the header."""
    header = decode_header(batch)
    payload = uncompressed_records(header, batch, max_bytes)
    if header.record_count > len(payload) // SMALLEST_RECORD_BYTES or header.record_count < 0:
        raise Corrupt(f"{header.record_count} records do not fit in {len(payload)} bytes", at=HEADER_BYTES - 4)
    pos = 0
    for n in range(header.record_count):
        record, pos = _decode_record(payload, pos, header, n)
        yield record
    if pos != len(payload):
        raise Corrupt(f"{len(payload) - pos} bytes are left after {header.record_count} records", at=pos)


def uncompressed_records(header: BatchHeader, batch: Buffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """The bytes of a batch's records, uncompressed."""
    if header.size_bytes > len(batch):
        raise Truncated("batch", need=header.size_bytes, have=len(batch), at=0)
    payload = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    if header.codec == 0:
        return payload
    return decompress(header.codec, payload, max_bytes)


def _decode_record(buf: bytes, pos: int, header: BatchHeader, n: int) -> tuple[Record, int]:
    start = pos
    length, pos = decode_varint(buf, pos)
    end = pos + length
    if length < 0 or end > len(buf):
        raise Truncated(f"record {n}", need=length, have=len(buf) - pos, at=start)
    pos += 1  # Attributes, of which none is in use.
    timestamp_delta, pos = decode_varint(buf, pos)
    offset_delta, pos = decode_varint(buf, pos)
    key, pos = _decode_bytes(buf, pos, end, "key")
    value, pos = _decode_bytes(buf, pos, end, "value")
    header_count, pos = decode_varint(buf, pos)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if header_count:
        if not 0 <= header_count <= min(MAX_HEADERS, (end - pos) // 2):
            raise Corrupt(f"record {n} says {header_count} headers, {end - pos} bytes are left", at=pos)
        headers, pos = _decode_headers(buf, pos, end, header_count)
    if pos != end:
        raise Corrupt(f"record {n} says it ends at byte {end}, its fields end at {pos}", at=start)
    timestamp = header.max_timestamp if header.has_log_append_time else header.base_timestamp + timestamp_delta
    check_place(header, timestamp, offset_delta, n, start)
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _decode_headers(
    buf: bytes, pos: int, end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:  # fmt: skip
    headers = []
    for _ in range(count):
        name, after = _decode_bytes(buf, pos, end, "header name")
        if name is None:
            raise Corrupt("a record header has no name", at=pos)
        value, pos = _decode_bytes(buf, after, end, "header value")
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), pos


def _decode_bytes(buf: bytes, pos: int, end: int, what: str) -> tuple[bytes | None, int]:
    length, pos = decode_varint(buf, pos)
    if length < 0:
        if length != -1:
            raise Corrupt(f"{what} has length {length}", at=pos)
        return None, pos
    if pos + length > end:
        raise Truncated(what, need=length, have=end - pos, at=pos)
    return buf[pos : pos + length], pos + length


def check_place(header: BatchHeader, timestamp: int, offset_delta: int, n: int, at: int) -> None:
    """Raise Corrupt for a timestamp or an offset that is impossible: a client can write any number into a record."""
    if not MIN_INT64 <= timestamp <= MAX_INT64:
        raise Corrupt(f"record {n} has timestamp {timestamp}", at=at)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise Corrupt(f"record {n} has offset delta {offset_delta}, the last is {header.last_offset_delta}", at=at)


def holds_records(buf: Buffer, pos: int, end: int, count: int) -> bool:
    """Whether exactly `count` records fill the bytes from `pos` to `end`, by their lengths alone."""
    for _ in range(count):
        if pos >= end:
            return False
        size = _RECORD_BYTES[buf[pos]]
        if size:
            pos += size
        else:
            length, pos = decode_varint(buf, pos)
            if length < SMALLEST_RECORD_BYTES - 1:
                return False
            pos += length
    return pos == end


def find_record_without_key(batch: Buffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> int | None:
    """The index of the first record without a key, which a compacted topic cannot keep; None if all have one.

    Reads each record only as far as the length of its key.
    """
    header = decode_header(batch)
    payload = uncompressed_records(header, batch, max_bytes)
    pos, size = 0, len(payload)
    try:
        for n in range(header.record_count):
            start = pos
            byte = payload[pos]
            if byte < 0x80:
                length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
            else:
                length, pos = decode_varint(payload, pos)
            end = pos + length
            if length < SMALLEST_RECORD_BYTES - 1 or end > size:
                raise Truncated(f"record {n}", need=length, have=size - pos, at=start)
            pos += 1  # Attributes.
            if payload[pos] < 0x80:
                pos += 1
            else:
                delta, pos = decode_varint(payload, pos)
                check_place(header, header.base_timestamp + delta, 0, n, start)
            while payload[pos] >= 0x80:  # The offset delta.
                pos += 1
            pos += 1
            if pos >= end:
                raise Truncated(f"record {n}", need=pos + 1 - start, have=end - start, at=start)
            if payload[pos] & 1:  # The sign of the key's length.
                return n
            pos = end
    except IndexError:
        raise Truncated("record", need=pos + 1, have=size, at=pos) from None
    if pos != size:
        raise Corrupt(f"{size - pos} bytes are left after {header.record_count} records", at=pos)
    return None


def decompress(codec: int, data: bytes, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """Undo one of Kafka's codecs. A result of more than `max_bytes` raises Corrupt, and is never held in memory."""
    import cramjam  # Loading it takes time, and few brokers ever need it.

    if codec == SNAPPY:
        return _decompress_snappy(cramjam, data, max_bytes)
    if codec not in (GZIP, LZ4, ZSTD):
        raise Corrupt(f"codec {codec} is unknown", at=CHECKED_AT)
    decompress_into = getattr(cramjam, CODECS[codec]).decompress_into
    size = min(max_bytes, max(1 << 12, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            used = decompress_into(data, out)
            return bytes(memoryview(out)[:used])
        except cramjam.DecompressionError as e:
            # Bad data is refused at once: memory for the largest output takes a tenth of a second.
            if size == max_bytes or str(e) != _words_for_too_small(codec):
                raise Corrupt(f"{CODECS[codec]} data, at most {max_bytes} bytes wanted: {e}", at=HEADER_BYTES) from None
            size = min(max_bytes, 8 * size)


@cache
def _words_for_too_small(codec: int) -> str:
    """What the library says of an output that is too small. It has one class for all errors."""
    import cramjam

    library = getattr(cramjam, CODECS[codec])
    try:
        library.decompress_into(library.compress(bytes(2)), bytearray(1))
    except cramjam.DecompressionError as e:
        return str(e)
    raise AssertionError(f"{CODECS[codec]} wrote two bytes into one")


def _decompress_snappy(cramjam: Any, data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _decompress_snappy_block(cramjam, data, max_bytes)
    blocks = []
    room = max_bytes
    pos = XERIAL_HEADER_BYTES
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + 4], "big")
        pos += 4
        if size > len(data) - pos or size == 0:
            raise Truncated("snappy block", need=size, have=len(data) - pos, at=HEADER_BYTES + pos)
        blocks.append(_decompress_snappy_block(cramjam, data[pos : pos + size], room))
        room -= len(blocks[-1])
        pos += size
    return b"".join(blocks)


def _decompress_snappy_block(cramjam: Any, data: bytes, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise Corrupt(f"snappy block says {size} bytes, at most {max_bytes} are allowed", at=HEADER_BYTES)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as e:
        raise Corrupt(f"snappy data: {e}", at=HEADER_BYTES) from None


def compress(codec: int, data: bytes) -> bytes:
    """Compress as Kafka's clients do."""
    import cramjam

    if codec == 0:
        return data
    if codec == SNAPPY:
        blocks = [XERIAL_MAGIC, (1).to_bytes(4, "big"), (1).to_bytes(4, "big")]
        for at in range(0, len(data), XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(data[at : at + XERIAL_BLOCK_BYTES]))
            blocks += (len(block).to_bytes(4, "big"), block)
        return b"".join(blocks)
    if codec == LZ4:
        blocks = [LZ4_FRAME_HEADER]
        for at in range(0, len(data), LZ4_BLOCK_BYTES):
            plain = data[at : at + LZ4_BLOCK_BYTES]
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
            if len(block) < len(plain):
                blocks += (len(block).to_bytes(4, "little"), block)
            else:
                blocks += ((len(plain) | LZ4_UNCOMPRESSED).to_bytes(4, "little"), plain)
        blocks.append(bytes(4))
        return b"".join(blocks)
    return bytes(getattr(cramjam, CODECS[codec]).compress(data))


def encode_records(
    records: list[Record],
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch of records with their own timestamps and headers, compressed if wanted. Offsets count from 0."""
    base_timestamp = records[0].timestamp
    payload = b"".join([_encode_record(record, n, base_timestamp) for n, record in enumerate(records)])
    return assemble(
        compress(codec, payload),
        len(records),
        attributes | codec,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
    )


def _encode_record(record: Record, n: int, base_timestamp: int) -> bytes:
    parts = [b"\0", encode_varint(record.timestamp - base_timestamp), encode_varint(n)]
    parts += (_encode_bytes(record.key), _encode_bytes(record.value), encode_varint(len(record.headers)))
    for name, value in record.headers:
        parts += (_encode_bytes(name.encode()), _encode_bytes(value))
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\x01" if value is None else encode_varint(len(value)) + value
