"""Loading an internal topic: the short way to the last values finds what reading every record finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker import internal_topic
from fencepost.broker.internal_topic import latest_values, load_batches
from fencepost.machines.log import LogConfig
from fencepost.machines.memory_log import MemoryStorage
from fencepost.machines.partition import Partition
from fencepost.protocol.batch import assemble, encode_batch, encode_record
from fencepost.protocol.records import Record, encode_records

NOW_MS = 1_700_000_000_000

keys = st.sampled_from([None, b"a", b"b", b"", b"k" * 63, b"k" * 64, b"k" * 300])
values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"v" * 63, b"v" * 64, b"v" * 9000]))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=3)


def partition_of(*batches: bytes) -> Partition:
    log = MemoryStorage().open_log("__transaction_state", 0, bytes(16), LogConfig())
    partition = Partition(log, "__transaction_state", 0)
    for batch in batches:
        partition.append_internal(batch)
    return partition


def read_everything(partition: Partition) -> dict[bytes, bytes | None]:
    return {r.key: r.value for batch in load_batches(partition) for r in batch.records if r.key is not None}


@given(st.lists(pairs, max_size=20), st.integers(1, 20_000))
def test_the_last_values_are_those_of_reading_every_record(
    written: list[list[tuple[bytes | None, bytes | None]]], size: int
) -> None:
    partition = partition_of(*(encode_batch(pairs, NOW_MS) for pairs in written))
    before, internal_topic.READ_BYTES = internal_topic.READ_BYTES, size
    try:
        assert latest_values(partition) == read_everything(partition)
    finally:
        internal_topic.READ_BYTES = before


def test_batches_that_no_coordinator_writes_are_read_the_long_way() -> None:
    plain = encode_batch([(b"id", b"1")], NOW_MS)
    # As compaction leaves them: the first record of the batch is gone, the second keeps its distance.
    compacted = assemble(encode_record(b"id", b"2", 1), 1, 0, NOW_MS, NOW_MS)
    compressed = encode_records([Record(0, NOW_MS, b"id", b"3")], codec=1)
    assert latest_values(partition_of(plain, compacted)) == {b"id": b"2"}
    assert latest_values(partition_of(plain, compressed)) == {b"id": b"3"}
    assert latest_values(partition_of(compressed, plain)) == {b"id": b"1"}


def test_a_marker_has_no_value_to_take() -> None:
    partition = partition_of(encode_batch([(b"id", b"1")], NOW_MS))
    partition.write_marker(7, 0, True, 0, NOW_MS)
    partition.append_internal(encode_batch([(b"id", b"2")], NOW_MS))
    assert latest_values(partition) == {b"id": b"2"}
