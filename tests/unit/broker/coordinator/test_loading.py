"""Loading an internal topic: the short way to the last records finds what reading every record finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.coordinator import loading
from fencepost.broker.coordinator.loading import LatestRecord, LatestRecords, load_latest
from fencepost.machines.log.interface import LogConfig
from fencepost.machines.log.memory import MemoryStorage
from fencepost.machines.partition.partition import Partition
from fencepost.protocol.batch import HEADER_BYTES, decode_header, decode_marker, encode_batch, stamp
from fencepost.protocol.filtering import keep_no_records, keep_records, skim
from fencepost.protocol.records import Record, encode_records, iter_batches, iter_records

NOW_MS = 1_700_000_000_000

keys = st.sampled_from([None, b"a", b"b", b"", b"k" * 63, b"k" * 64, b"k" * 300])
values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"v" * 63, b"v" * 64, b"v" * 9000]))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=3)
# A write is plain (None) or belongs to the transaction of a producer id; an end is its marker.
writes = st.tuples(st.sampled_from([None, None, 1, 2]), pairs)
ends = st.tuples(st.sampled_from([1, 2]), st.booleans())


def partition_of(*batches: bytes) -> Partition:
    log = MemoryStorage().open_log("__transaction_state", 0, bytes(16), LogConfig())
    partition = Partition(log, "__transaction_state", 0)
    for batch in batches:
        partition.append_internal(batch)
    return partition


def read_everything(partition: Partition) -> LatestRecords:
    found = LatestRecords()
    for header, batch in iter_batches(partition.log.read(0, 1 << 30, partition.log.end_address)):
        marker = decode_marker(batch)
        if marker is not None:
            found.end_txn(marker.producer_id, marker.commit)
        for record in iter_records(batch) if not header.is_control else ():
            if record.key is not None:
                producer_id = header.producer_id if header.is_transactional else None
                found.put(record.key, record.value, record.offset, producer_id)
    return found


def values_of(partition: Partition) -> dict[bytes, bytes]:
    return {key: record.value for key, record in load_latest(partition).by_key.items()}


@given(st.lists(st.one_of(writes, ends), max_size=20), st.integers(1, 20_000))
def test_the_last_records_are_those_of_reading_every_record(written: list[tuple], size: int) -> None:  # type: ignore[type-arg]
    partition = partition_of()
    for producer_id, what in written:
        if isinstance(what, bool):
            partition.write_marker(producer_id, 0, what, 0, NOW_MS)
        elif producer_id is None:
            partition.append_internal(encode_batch(what, NOW_MS))
        else:
            partition.append_internal(encode_batch(what, NOW_MS, producer_id, 0, transactional=True))
    before, loading.READ_BYTES = loading.READ_BYTES, size
    try:
        found, expected = load_latest(partition), read_everything(partition)
    finally:
        loading.READ_BYTES = before
    assert found.by_key == expected.by_key
    assert found.pending_in_order() == expected.pending_in_order()


def test_batches_that_no_coordinator_writes_are_read_the_long_way() -> None:
    plain = encode_batch([(b"id", b"1")], NOW_MS)
    # As compaction leaves them: the first record of the batch is gone, the second keeps its distance.
    two = encode_batch([(b"other", b"0"), (b"id", b"2")], NOW_MS)
    header, payload = decode_header(two), two[HEADER_BYTES:]
    compacted = keep_records(header, payload, list(skim(header, payload))[1:], None)
    emptied = keep_no_records(decode_header(plain))
    compressed = encode_records([Record(0, NOW_MS, b"id", b"3")], codec=1)
    assert values_of(partition_of(plain, compacted)) == {b"id": b"2"}
    assert values_of(partition_of(plain, compressed)) == {b"id": b"3"}
    assert values_of(partition_of(compressed, plain)) == {b"id": b"1"}
    log = MemoryStorage().open_log("__transaction_state", 0, bytes(16), LogConfig())
    log.append(plain, 0, 0, NOW_MS)
    log.append(stamp(emptied, 1, 0), 1, 1, NOW_MS)
    assert values_of(Partition(log, "__transaction_state", 0)) == {b"id": b"1"}


def test_a_transactions_record_counts_with_its_marker_and_yields_to_a_later_one() -> None:
    partition = partition_of(encode_batch([(b"a", b"old"), (b"b", b"old")], NOW_MS))
    partition.append_internal(encode_batch([(b"a", b"new"), (b"b", b"new")], NOW_MS, 7, 0, transactional=True))
    assert values_of(partition) == {b"a": b"old", b"b": b"old"}
    assert load_latest(partition).pending == {7: {b"a": LatestRecord(2, b"new"), b"b": LatestRecord(3, b"new")}}
    partition.append_internal(encode_batch([(b"b", b"newer")], NOW_MS))
    partition.write_marker(7, 0, True, 0, NOW_MS)
    assert values_of(partition) == {b"a": b"new", b"b": b"newer"}
    assert load_latest(partition).pending == {}


def test_a_tombstone_takes_back_what_a_transaction_wrote_before_it() -> None:
    partition = partition_of(encode_batch([(b"a", b"new")], NOW_MS, 7, 0, transactional=True))
    partition.append_internal(encode_batch([(b"a", None)], NOW_MS))
    partition.write_marker(7, 0, True, 0, NOW_MS)
    assert values_of(partition) == {}
