"""Rows as complete v2 record batches, without a Python step for each record.

    rows -> Columns -> group_rows -> encode_record_batches -> EncodedRecordBatch -> finish_record_batch -> Produce

`layout.py` lays out all records of all groups in one buffer, and each record batch is a slice of it. Producer id, epoch
and sequence are known only when a record batch may be sent. They are in the header, which `finish_record_batch` adds.
The same arguments give the same bytes, so a broker recognizes a resend as a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol.batch import (
    CHECKED_HEADER,
    CODEC_MASK,
    CODECS,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    UNCHECKED_HEADER,
    Buffer,
    decode_header,
)
from fencepost.protocol.crc import crc32c
from fencepost.protocol.records import Record, compress, encode_records, iter_records
from fencepost.spark.encode.columns import BadRecord, BinaryColumn, Columns, Ints, binary_column, timestamps_ms
from fencepost.spark.encode.layout import Part, Taken, constant, lay_out, varint_width, varints, zigzag
from fencepost.spark.encode.partitioning import RowGroups, group_rows

# Kafka's default `max.message.bytes` is 1 MiB and twelve bytes.
DEFAULT_MAX_RECORD_BATCH_BYTES = (1 << 20) - 1024
# Rows are encoded in slices of this size, which bounds the memory for Arrow batches of any size.
MAX_SLICE_BYTES = 32 << 20
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class EncodedRecordBatch:
    """The parts of a record batch that do not depend on its producer and its sequence."""

    topic: str
    partition: int
    record_count: int
    payload: Buffer
    attributes: int
    base_timestamp: int
    max_timestamp: int
    # True for a single record that is larger than the limit, even compressed. Its topic may allow it all the same.
    oversized: bool = False

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.payload)


def encode_rows(
    rows: Any,
    *,
    topic: str | None,
    partition_count: Callable[[str], int],
    now_ms: int,
    null_start: int = 0,
    compression: str = "none",
    max_record_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,
) -> Iterator[EncodedRecordBatch]:
    """The rows of a pyarrow RecordBatch or Table as record batches. Those of a partition are in order."""
    for part in _slices(rows, MAX_SLICE_BYTES):
        columns = Columns.of(part)
        groups = group_rows(columns, topic, partition_count, null_start=null_start)
        yield from encode_record_batches(
            columns, groups, now_ms=now_ms, compression=compression, max_record_batch_bytes=max_record_batch_bytes
        )
        null_start += len(columns)


def _slices(rows: Any, max_bytes: int) -> Iterator[Any]:
    if rows.num_rows < 2 or sum(_size_bytes(column) for column in rows.columns) <= max_bytes:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _slices(rows.slice(0, half), max_bytes)
        yield from _slices(rows.slice(half), max_bytes)


def _size_bytes(array: Any) -> int:
    """The size of a column. A value of a dictionary counts as often as it occurs."""
    if isinstance(array, pa.ChunkedArray):
        return sum(map(_size_bytes, array.chunks))
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    return int(pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0) + 8 * len(array)


def encode_record_batches(
    columns: Columns,
    groups: RowGroups,
    *,
    now_ms: int,
    compression: str = "none",
    max_record_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,
) -> Iterator[EncodedRecordBatch]:
    """The record batches of each group. A group is cut where the next record could exceed the size limit."""
    if compression not in CODECS:
        raise ValueError(f"unknown compression {compression!r}; it can be {', '.join(CODECS)}")
    codec = CODECS.index(compression)
    count = len(groups.order)
    if not count:
        return
    fields = _fields(columns, groups.order)
    times = timestamps_ms(columns.timestamp, now_ms)
    if times is not None:
        times = times[groups.order]

    starts, destinations = _cut(groups, _largest_sizes(fields, groups, times), max_record_batch_bytes - HEADER_BYTES)
    counts = np.diff(starts)
    if times is None:
        first_times = last_times = np.full(len(counts), now_ms)
        delta = constant(0)
    else:
        first_times, last_times = times[starts[:-1]], np.maximum.reduceat(times, starts[:-1])
        delta = varints(zigzag(times - np.repeat(first_times, counts)))
    offset = varints((np.arange(count) - np.repeat(starts[:-1], counts)) << 1)

    before = (constant(0), delta, offset)  # Attributes (all unused), timestamp delta, offset delta.
    size = fields.size + sum(field.size for field in before)
    data, ends = lay_out(count, [varints(size << 1), *before, *fields.parts])

    for n, (group, begin, end) in enumerate(zip(destinations, starts.tolist(), starts[1:].tolist())):
        plain = data[ends[begin] : ends[end]]
        payload, used = _compressed(codec, plain)
        topic, partition = groups.destinations[group]
        yield EncodedRecordBatch(
            topic,
            partition,
            end - begin,
            payload,
            TRANSACTIONAL | used,
            int(first_times[n]),
            int(last_times[n]),
            oversized=HEADER_BYTES + len(payload) > max_record_batch_bytes,
        )


def _compressed(codec: int, plain: memoryview) -> tuple[Buffer, int]:
    """The records as they are sent, and their codec. Records that compression makes larger are sent uncompressed."""
    if codec:
        smaller = compress(codec, bytes(plain))
        if len(smaller) < len(plain):
            return smaller, codec
    return plain, 0


def finish_header(batch: EncodedRecordBatch, identity: ProducerIdentity, base_sequence: int) -> bytes:
    """The header, which goes before the payload: producer, sequence and checksum."""
    checked = CHECKED_HEADER.pack(
        batch.attributes,
        batch.record_count - 1,
        batch.base_timestamp,
        batch.max_timestamp,
        identity.producer_id,
        identity.producer_epoch,
        base_sequence,
        batch.record_count,
    )
    crc = crc32c(batch.payload, crc32c(checked))
    return UNCHECKED_HEADER.pack(0, batch.size_bytes - PREFIX_BYTES, NO_LEADER_EPOCH, MAGIC, crc) + checked


def finish_record_batch(batch: EncodedRecordBatch, identity: ProducerIdentity, base_sequence: int) -> bytes:
    """The record batch as it is sent."""
    return b"".join((finish_header(batch, identity, base_sequence), batch.payload))


def halve_record_batch(batch: EncodedRecordBatch) -> tuple[EncodedRecordBatch, EncodedRecordBatch]:
    """Two halves, for a topic that allows less than max.request.size. The second follows the first in sequence."""
    assert batch.record_count > 1, "a record cannot be cut"
    records = list(iter_records(finish_record_batch(batch, ProducerIdentity("", -1, -1), -1)))
    middle = len(records) // 2
    first, second = (_encoded_again(batch, half) for half in (records[:middle], records[middle:]))
    return first, second


def _encoded_again(batch: EncodedRecordBatch, records: list[Record]) -> EncodedRecordBatch:
    codec = batch.attributes & CODEC_MASK
    encoded = encode_records(records, codec, TRANSACTIONAL)
    header = decode_header(encoded)
    return EncodedRecordBatch(
        batch.topic,
        batch.partition,
        header.record_count,
        memoryview(encoded)[HEADER_BYTES:],
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
    )


# --- sizes -----------------------------------------------------------------------------------------------


def _largest_sizes(fields: _Fields, groups: RowGroups, times: Ints | None) -> Ints:
    """The largest size of each record. Its exact size differs by a few bytes, depending on its record batch."""
    most_records = int(np.diff(groups.bounds).max())
    span = 0 if times is None else int(times.max() - times.min())
    around = 1 + varint_width(2 * most_records) + varint_width(2 * span)
    largest = int(fields.size.max()) + around
    return fields.size + (around + varint_width(2 * largest))


def _cut(groups: RowGroups, sizes: Ints, room: int) -> tuple[Ints, list[int]]:
    """Where each record batch begins (and the last one ends) in the order of the groups, and the group of each."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    starts, group_of = [], []
    for group, (at, end) in enumerate(zip(groups.bounds.tolist(), groups.bounds[1:].tolist())):
        while at < end:
            starts.append(at)
            group_of.append(group)
            if ends[end] - ends[at] <= room:
                break
            at = max(at + 1, int(np.searchsorted(ends, ends[at] + room, "right")) - 1)
    return np.array([*starts, len(sizes)], np.int64), group_of


# --- key, value, headers ---------------------------------------------------------------------------------


class _Fields(NamedTuple):
    """Key, value and headers with their lengths, and how many bytes they take together."""

    parts: list[Part]
    size: Ints


def _fields(columns: Columns, order: Ints) -> _Fields:
    parts: list[Part] = []
    size = np.zeros(len(order), np.int64)
    for column in (columns.key, columns.value):
        size += _append_bytes(parts, column, order)
    headers = _headers(columns.headers)
    if headers is None:
        parts.append(constant(0))
        return _Fields(parts, size + 1)
    counts, encoded = headers
    count = varints(counts[order] << 1)
    parts += (count, Taken(encoded, order))
    return _Fields(parts, size + count.size + encoded.lengths()[order])


def _append_bytes(parts: list[Part], column: BinaryColumn | None, order: Ints) -> Ints | int:
    """Append each length and its bytes to the parts, or -1 for null. Returns the size of both together."""
    if column is None:
        parts.append(constant(1))
        return 1
    lengths = column.lengths()[order]
    doubled = lengths << 1
    if column.valid is not None:
        doubled[~column.valid[order]] = 1
    length = varints(doubled)
    parts += (length, Taken(column, order))
    return lengths + length.size


def _headers(lists: Any) -> tuple[Ints, BinaryColumn] | None:
    """The number of headers of each row, and their bytes. None if no row has any."""
    if lists is None or lists.null_count == len(lists):
        return None
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise TypeError(f"headers attribute type must be array<struct<key:string,value:binary>>, not {kind}")
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    headers = lists.flatten()
    if not len(headers):
        return None
    names, values = headers.flatten()
    if names.null_count:
        raise BadRecord("a record header has no key")
    parts: list[Part] = []
    every = np.arange(len(headers))
    _append_bytes(parts, binary_column(names, "headers.key"), every)
    _append_bytes(parts, binary_column(values, "headers.value"), every)
    data, ends = lay_out(len(headers), parts)
    # The headers of a row follow each other, so the bytes of a row are one range.
    offsets = ends[np.concatenate(([0], np.cumsum(counts)))]
    return counts, BinaryColumn(np.frombuffer(data, np.uint8), offsets)
