"""For any rows in any layout, the record batches equal those of the plain encoder, record by record."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol.batch import CODECS, TRANSACTIONAL, decode_batch
from fencepost.protocol.records import Record, encode_records, iter_records
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.partitioning import murmur2
from fencepost.spark.encode.record_batches import EncodedRecordBatch, encode_rows, finish_record_batch
from tests.unit.spark.encode.partitioner import murmur2 as murmur2_of
from tests.unit.spark.encode.partitioner import partition_for

NOW_MS = 1_700_000_000_000
WHO = ProducerIdentity("sink", 12, 3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PARTITIONS = {"orders": 1, "refunds": 3, "audit": 70_000}


class Row(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp: int | None


def lengths_near_a_step() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 50, 57, 58, 62, 63, 64, 65, 8_170, 8_180, 8_190, 8_191, 8_192])


def byte_strings() -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=12), st.text(max_size=8).map(str.encode), lengths_near_a_step().map(bytes))


def rows() -> st.SearchStrategy[list[Row]]:
    header = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70))
    row = st.builds(
        Row,
        topic=st.sampled_from(sorted(PARTITIONS)),
        partition=st.just(0) | st.none(),
        key=st.none() | byte_strings(),
        value=st.none() | byte_strings(),
        headers=st.none() | st.lists(header, max_size=3),
        timestamp=st.none() | st.integers(0, 2**54 - 1) | st.integers(NOW_MS - 9_000, NOW_MS + 9_000),
    )
    return st.lists(row, max_size=30)


def layouts() -> st.SearchStrategy[Any]:
    """A way to lay out a column of bytes: its type, whether it is part of a larger array, and its chunks."""
    kind = st.sampled_from([pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())])
    return st.tuples(kind, st.booleans(), st.booleans())


def laid_out(values: list[bytes | None], layout: tuple[Any, bool, bool]) -> Any:
    kind, sliced, chunked = layout
    around = [b"not a row", None] if sliced else []
    array = pa.array([*around, *values, *around], pa.binary()).cast(kind).slice(len(around), len(values))
    middle = len(values) // 2
    return pa.chunked_array([array.slice(0, middle), array.slice(middle)]) if chunked else array


def table(given: list[Row], key_layout: Any, value_layout: Any, absent: frozenset[str]) -> pa.Table:
    columns = {
        "topic": pa.array([row.topic for row in given], pa.string()),
        "partition": pa.array([row.partition for row in given], pa.int32()),
        "key": laid_out([row.key for row in given], key_layout),
        "value": laid_out([row.value for row in given], value_layout),
        "headers": pa.array([headers_of(row) for row in given], HEADERS),
        "timestamp": pa.array([row.timestamp for row in given], pa.int64()),
    }
    return pa.table({name: array for name, array in columns.items() if name not in absent})


def headers_of(row: Row) -> list[dict[str, object]] | None:
    return None if row.headers is None else [{"key": k, "value": v} for k, v in row.headers]


def without(row: Row, absent: frozenset[str]) -> Row:
    nothing: dict[str, Any] = dict.fromkeys(absent)
    return row._replace(**nothing)


def expected_records(given: list[Row], null_start: int) -> dict[TopicPartition, list[Record]]:
    """The records of each partition, without offsets, as a producer that takes rows one by one writes them."""
    found: dict[TopicPartition, list[Record]] = {}
    turns = dict.fromkeys(PARTITIONS, null_start)
    for row in given:
        partition = row.partition
        if partition is None and row.key is not None:
            partition = partition_for(row.key, PARTITIONS[row.topic])
        if partition is None:
            partition = turns[row.topic] % PARTITIONS[row.topic]
            turns[row.topic] += 1
        timestamp = NOW_MS if row.timestamp is None else row.timestamp
        record = Record(0, timestamp, row.key, row.value, tuple(row.headers or ()))
        found.setdefault((row.topic, partition), []).append(record)
    return found


def finished(batch: EncodedRecordBatch) -> bytes:
    complete = finish_record_batch(batch, WHO, 9)
    assert decode_batch(complete)[1] == len(complete)
    return complete


@settings(max_examples=200)
@given(
    given_rows=rows(),
    key_layout=layouts(),
    value_layout=layouts(),
    absent=st.frozensets(st.sampled_from(["key", "partition", "headers", "timestamp"])),
    null_start=st.integers(0, 2**40),
    max_record_batch_bytes=st.sampled_from([100, 300, 9_000, 1 << 20]),
    codec=st.sampled_from(range(5)),
)
def test_batches_are_those_of_a_producer_that_takes_rows_one_by_one(
    given_rows: list[Row],
    key_layout: Any,
    value_layout: Any,
    absent: frozenset[str],
    null_start: int,
    max_record_batch_bytes: int,
    codec: int,
) -> None:
    batches = list(
        encode_rows(
            table(given_rows, key_layout, value_layout, absent),
            topic=None,
            partition_count=PARTITIONS.__getitem__,
            now_ms=NOW_MS,
            null_start=null_start,
            compression=CODECS[codec],
            max_record_batch_bytes=max_record_batch_bytes,
        )
    )
    expected = expected_records([without(row, absent) for row in given_rows], null_start)
    found: dict[TopicPartition, list[Record]] = {}
    for batch in batches:
        records = list(iter_records(finished(batch), max_bytes=1 << 20))
        assert [record.offset for record in records] == list(range(batch.record_count))
        assert batch.max_timestamp == max(record.timestamp for record in records)
        assert batch.oversized == (batch.size_bytes > max_record_batch_bytes)
        assert batch.record_count == 1 or len(encode_records(records, 0)) <= max_record_batch_bytes
        if batch.attributes == TRANSACTIONAL:
            plain = bytearray(encode_records(records, 0, TRANSACTIONAL, WHO.producer_id, WHO.producer_epoch, 9))
            plain[12:16] = b"\xff" * 4
            assert finished(batch) == plain
        found.setdefault((batch.topic, batch.partition), []).extend(record._replace(offset=0) for record in records)
    assert found == expected


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40) | lengths_near_a_step().map(bytes), min_size=1, max_size=60))
@example([b""])
@example([b"\xff" * n for n in range(40)])
def test_hashes_are_those_of_kafkas_algorithm_key_by_key(keys: list[bytes]) -> None:
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [murmur2_of(key) for key in keys]
