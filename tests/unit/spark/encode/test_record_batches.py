"""Rows become the record batches that Kafka's clients would make of them, byte for byte."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol.batch import CODECS, HEADER_BYTES, decode_batch
from fencepost.protocol.records import Record, encode_records, iter_records
from fencepost.spark.encode.columns import BadRecord
from fencepost.spark.encode.record_batches import (
    DEFAULT_MAX_RECORD_BATCH_BYTES,
    EncodedRecordBatch,
    encode_rows,
    finish_header,
    finish_record_batch,
    halve_record_batch,
)

NOW_MS = 1_700_000_000_000
WHO = ProducerIdentity("sink", 4_000, 7)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def encoded(partitions: int = 1, **columns: Any) -> list[EncodedRecordBatch]:
    """The record batches of a table of these columns; `compression` and `max_record_batch_bytes` are options."""
    options = {name: columns.pop(name) for name in ("compression", "max_record_batch_bytes") if name in columns}
    rows = pa.table(columns)
    return list(encode_rows(rows, topic="t", partition_count=lambda _: partitions, now_ms=NOW_MS, **options))


def unpacked_bytes(batch: EncodedRecordBatch) -> int:
    """The size of the record batch without compression."""
    return len(encode_records(records_in(batch), 0))


def records_in(batch: EncodedRecordBatch) -> list[Record]:
    finished = finish_record_batch(batch, WHO, 0)
    header, end = decode_batch(finished)
    assert end == len(finished) == batch.size_bytes
    assert header.record_count == batch.record_count == header.last_offset_delta + 1
    return list(iter_records(finished))


def only(batches: list[EncodedRecordBatch]) -> EncodedRecordBatch:
    (batch,) = batches
    return batch


def test_the_header_carries_identity_and_sequence_and_a_resend_is_the_same_bytes() -> None:
    batch = only(encoded(value=[b"a", b"b"]))
    header, _ = decode_batch(finish_record_batch(batch, WHO, 2**31 - 1))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4_000, 7, 2**31 - 1)
    assert header.is_transactional
    assert (header.base_offset, header.leader_epoch, header.magic) == (0, -1, 2)
    assert finish_record_batch(batch, WHO, 5) == finish_record_batch(batch, WHO, 5)
    assert finish_header(batch, WHO, 5) + bytes(batch.payload) == finish_record_batch(batch, WHO, 5)


def test_timestamps_of_every_unit_become_milliseconds_rounded_down() -> None:
    exact = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    milliseconds = int(exact.timestamp()) * 1_000
    for unit in ("s", "ms", "us", "ns"):
        batch = only(encoded(value=["v"], timestamp=pa.array([exact], pa.timestamp(unit, "UTC"))))
        assert batch.base_timestamp == milliseconds
    late = pa.array([milliseconds * 1_000 + 999], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert only(encoded(value=["v"], timestamp=late)).base_timestamp == milliseconds


@pytest.mark.parametrize("wrong", [-1, 2**54])
def test_a_timestamp_that_kafka_cannot_hold_is_refused(wrong: int) -> None:
    with pytest.raises(BadRecord, match=f"row 1: {wrong} ms"):
        encoded(value=["a", "b"], timestamp=pa.array([0, wrong], pa.int64()))


@pytest.mark.parametrize("header", [{"key": None, "value": b"v"}, None])
def test_a_header_without_a_key_is_refused(header: Any) -> None:
    with pytest.raises(BadRecord, match="header has no key"):
        encoded(value=["v"], headers=pa.array([[header]], HEADERS))


def test_arrow_arrays_of_every_layout_are_the_same_rows() -> None:
    values = ["before", "", "héllo", None, "x" * 70, "after", "more"]
    plain = pa.array(values, pa.string())
    layouts = {
        "string": plain,
        "binary": plain.cast(pa.binary()),
        "large string": plain.cast(pa.large_string()),
        "large binary": plain.cast(pa.large_binary()),
        "dictionary": plain.dictionary_encode(),
        "chunks": pa.chunked_array([plain.slice(0, 2), plain.slice(2, 0), plain.slice(2)]),
        "chunks of dictionaries": pa.chunked_array(
            [plain.slice(0, 4).dictionary_encode(), plain.slice(4).dictionary_encode()]
        ),
        "view": plain.cast(pa.string_view()),
    }
    expected = [value if value is None else value.encode() for value in values]
    for name, array in layouts.items():
        for begin, end in ((0, 7), (1, 6), (3, 4), (2, 2)):
            part = array.slice(begin, end - begin)
            found = [r for b in encoded(key=part, value=part, partitions=1) for r in records_in(b)]
            assert [r.key for r in found] == [r.value for r in found] == expected[begin:end], name


def test_bytes_of_fixed_width_and_columns_of_nothing_are_taken() -> None:
    found = records_in(only(encoded(key=pa.array([b"abcd", None], pa.binary(4)), value=pa.nulls(2))))
    assert [(record.key, record.value) for record in found] == [(b"abcd", None), (None, None)]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": ["k"]}, "required attribute 'value' not found"),
        ({"value": [1]}, "value attribute type must be a string or binary"),
        ({"value": ["v"], "key": [1.5]}, "key attribute type must be a string or binary"),
        ({"value": ["v"], "partition": ["0"]}, "partition attribute type must be an int"),
        ({"value": ["v"], "timestamp": ["now"]}, "timestamp attribute type must be a timestamp"),
        ({"value": ["v"], "headers": [["h"]]}, "headers attribute type must be array<struct"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused_by_name(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        encoded(**columns)


def test_no_rows_make_no_batches() -> None:
    assert encoded(value=pa.array([], pa.string()), key=pa.array([], pa.binary())) == []
    assert encoded(value=pa.chunked_array([], pa.string())) == []


def test_batches_stay_within_the_limit_and_are_filled() -> None:
    values = [random.Random(n).randbytes(random.Random(n).randrange(200)) for n in range(20_000)]
    batches = encoded(value=values, max_record_batch_bytes=50_000)
    assert all(batch.size_bytes <= 50_000 and not batch.oversized for batch in batches)
    assert all(batch.size_bytes > 48_000 for batch in batches[:-1])
    assert [record.value for batch in batches for record in records_in(batch)] == values


def test_a_record_larger_than_the_limit_is_alone_and_says_how_large_it_is() -> None:
    values = [b"a", b"b" * 2_000, b"c" * 2_000, b"d", b"e"]
    batches = encoded(value=values, max_record_batch_bytes=1_000)
    assert [(batch.record_count, batch.oversized) for batch in batches] == [
        (1, False),
        (1, True),
        (1, True),
        (2, False),
    ]
    assert batches[1].size_bytes == HEADER_BYTES + 2_000 + 9


def test_a_large_record_that_compression_makes_small_is_not_flagged() -> None:
    batch = only(encoded(value=[b"b" * 2_000], max_record_batch_bytes=1_000, compression="zstd"))
    assert not batch.oversized
    assert batch.size_bytes < 1_000


def test_a_record_that_just_fits_is_not_flagged_and_one_byte_more_is() -> None:
    fits = only(encoded(value=[b"v" * 500]))
    assert not only(encoded(value=[b"v" * 500], max_record_batch_bytes=fits.size_bytes)).oversized
    assert only(encoded(value=[b"v" * 501], max_record_batch_bytes=fits.size_bytes)).oversized


@pytest.mark.parametrize("codec", CODECS)
def test_what_compression_makes_larger_is_sent_as_it_is(codec: str) -> None:
    values = [random.Random(n).randbytes(10_000) for n in range(300)]
    batches = encoded(value=values, compression=codec)
    assert all(batch.size_bytes <= DEFAULT_MAX_RECORD_BATCH_BYTES and not batch.oversized for batch in batches)
    assert [record.value for batch in batches for record in records_in(batch)] == values


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="brotli"):
        encoded(value=["v"], compression="brotli")


def test_memory_stays_small_however_large_the_rows_of_a_dictionary_become() -> None:
    value = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4_096, np.int32)), pa.array([b"x" * 65_536]))
    before = pa.total_allocated_bytes()
    seen = most = 0
    for batch in encode_rows(pa.table({"value": value}), topic="t", partition_count=lambda _: 6, now_ms=NOW_MS):
        seen += batch.size_bytes
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen > 256 << 20
    assert most < 100 << 20


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_halved_batch_holds_the_same_records_in_two(codec: str) -> None:
    given = [[{"key": "h", "value": str(n).encode()}] if n % 2 else None for n in range(101)]
    times = pa.array(range(101, 0, -1), pa.int64())
    values = [f"value {n}" * 3 for n in range(101)]
    whole = only(encoded(value=values, headers=pa.array(given, HEADERS), timestamp=times, compression=codec))
    first, second = halve_record_batch(whole)
    assert (first.record_count, second.record_count) == (50, 51)
    assert (second.base_timestamp, second.max_timestamp) == (51, 51)
    assert first.attributes == second.attributes == whole.attributes
    assert unpacked_bytes(first) + unpacked_bytes(second) < unpacked_bytes(whole) + HEADER_BYTES + 200
    again = [record._replace(offset=n) for n, record in enumerate(records_in(first) + records_in(second))]
    assert again == records_in(whole)
