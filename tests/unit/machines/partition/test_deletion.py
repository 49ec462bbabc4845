"""Old segments are deleted by time and by size; a log's start never moves past an open transaction."""

from __future__ import annotations

import pytest

from fencepost.machines.log.interface import LogConfig, StorageFailed
from fencepost.machines.log.memory import MemoryLog, MemoryStorage
from fencepost.machines.partition.deletion import Retention, apply_retention, delete_records, first_kept_offset
from fencepost.machines.partition.list_offsets import offset_for
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.recovery import recover
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from tests.memory_storage import after_kill

NOW = 1_700_000_000_000
HOUR = 3_600_000


class Segment:
    """The least that a segment must have."""

    def __init__(self, base_offset: int, size: int, newest_ms: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self._newest_ms = newest_ms

    def largest_timestamp(self) -> int:
        return self._newest_ms

    def first_timestamp(self) -> int:
        return self._newest_ms


def segments(*newest_ms: int, size: int = 100) -> list[Segment]:
    return [Segment(10 * n, size, at_ms) for n, at_ms in enumerate(newest_ms)]


def kept(found: list[Segment], retention: Retention, limit: int = 1000) -> int:
    return first_kept_offset(found, 10 * len(found), limit, retention, NOW)


@pytest.mark.parametrize(
    ("retention_ms", "offset"), [(-1, 0), (4 * HOUR, 0), (3 * HOUR, 0), (3 * HOUR - 1, 10), (HOUR, 20), (0, 40)]
)
def test_a_segment_is_deleted_when_its_youngest_record_is_too_old(retention_ms: int, offset: int) -> None:
    found = segments(NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW - 1)
    assert kept(found, Retention(retention_ms)) == offset


def test_an_old_segment_after_a_young_one_stays() -> None:
    assert kept(segments(NOW - 9 * HOUR, NOW, NOW - 9 * HOUR), Retention(HOUR)) == 10


@pytest.mark.parametrize(("size", "offset"), [(-1, 0), (400, 0), (301, 0), (300, 10), (200, 20), (1, 30), (0, 40)])
def test_a_segment_is_deleted_while_enough_is_left_without_it(size: int, offset: int) -> None:
    assert kept(segments(NOW, NOW, NOW, NOW), Retention(-1, size)) == offset


def test_nothing_past_the_limit_is_deleted() -> None:
    old = segments(0, 0, 0)
    assert kept(old, Retention(1), limit=30) == 30
    assert kept(old, Retention(1), limit=29) == 20
    assert kept(old, Retention(1), limit=9) == 0


def test_an_empty_active_segment_stays() -> None:
    found = [*segments(0, 0), Segment(20, 0, -1)]
    assert first_kept_offset(found, 20, 20, Retention(0, 0), NOW) == 20


# --- a partition --------------------------------------------------------------------------------------------


def new_partition(segment_bytes: int = 200) -> tuple[Partition, MemoryStorage]:
    storage = MemoryStorage()
    log = storage.open_log("t", 0, bytes(16), LogConfig(segment_bytes=segment_bytes))
    return Partition(log, "t", 0), storage


def write(partition: Partition, count: int, at_ms: int = NOW, producer_id: int = -1, first: int = 0) -> None:
    for n in range(count):
        sequence = first + n if producer_id >= 0 else -1
        batch = encode_batch([(b"k", b"v")], at_ms, producer_id, 0 if producer_id >= 0 else -1, sequence)
        assert partition.append(batch, at_ms).error == errors.NONE


def test_records_that_are_too_old_cannot_be_fetched() -> None:
    partition, _ = new_partition()
    write(partition, 9, NOW - 2 * HOUR)
    write(partition, 9, NOW)
    assert apply_retention(partition, Retention(HOUR), NOW)
    # The segment with both old and new records is kept.
    assert partition.log.start_offset == 8
    assert partition.fetch(7, 1000).error == errors.OFFSET_OUT_OF_RANGE
    assert partition.fetch(8, 1000).error == errors.NONE
    assert offset_for(partition, -2).offset == 8
    assert not apply_retention(partition, Retention(HOUR), NOW)


def test_a_log_without_writes_becomes_empty_and_keeps_its_offsets() -> None:
    partition, storage = new_partition()
    write(partition, 5, NOW, producer_id=7)
    assert apply_retention(partition, Retention(HOUR), NOW + 2 * HOUR)
    assert (partition.log.start_offset, partition.log.end_offset) == (5, 5)
    recovered = recover(after_kill(storage).open_log("t", 0, bytes(16), LogConfig()), "t", 0)
    assert (recovered.log.start_offset, recovered.log.end_offset) == (5, 5)
    assert not apply_retention(recovered, Retention(HOUR), NOW + 9 * HOUR)
    # Its producers are still known: the next batch has the next sequence.
    write(recovered, 1, NOW, producer_id=7, first=5)
    assert recovered.log.end_offset == 6


def test_an_open_transaction_holds_its_segments() -> None:
    partition, _ = new_partition()
    write(partition, 4, NOW - 9 * HOUR)
    batch = encode_batch([(b"k", b"v")], NOW - 9 * HOUR, 7, 0, 0, transactional=True)
    partition.append(batch, NOW, verified=True)
    write(partition, 4, NOW - 9 * HOUR)
    assert apply_retention(partition, Retention(HOUR), NOW)
    assert partition.log.start_offset == 4 == partition.last_stable_offset
    partition.write_marker(7, 0, True, 0, NOW - 9 * HOUR)
    assert apply_retention(partition, Retention(HOUR), NOW)
    assert partition.log.start_offset == partition.log.end_offset


def test_aborted_transactions_that_are_wholly_gone_are_not_named_any_more() -> None:
    partition, _ = new_partition()
    for n in range(3):
        batch = encode_batch([(b"k", b"v")], NOW, 7, 0, n, transactional=True)
        partition.append(batch, NOW, verified=True)
        partition.write_marker(7, 0, False, 0, NOW)
    delete_records(partition, 3)
    assert [entry.last_offset for entry in partition.log.aborted(0, 99)] == [3, 5]


# --- DeleteRecords ------------------------------------------------------------------------------------------


def test_records_are_deleted_up_to_an_offset_within_a_batch() -> None:
    partition, storage = new_partition()
    partition.append(encode_batch([(b"k", b"v")] * 5, NOW), NOW)
    write(partition, 5)
    assert delete_records(partition, 3) == (errors.NONE, 3)
    assert partition.fetch(2, 1000).error == errors.OFFSET_OUT_OF_RANGE
    assert partition.fetch(3, 1000).records
    assert offset_for(partition, 0).offset == 3
    assert delete_records(partition, 1) == (errors.NONE, 3), "it does not go back"
    recovered = recover(after_kill(storage).open_log("t", 0, bytes(16), LogConfig()), "t", 0)
    assert recovered.log.start_offset == 3


@pytest.mark.parametrize("offset", [-2, 6])
def test_an_offset_that_the_log_does_not_have_is_out_of_range(offset: int) -> None:
    partition, _ = new_partition()
    write(partition, 5)
    assert delete_records(partition, offset) == (errors.OFFSET_OUT_OF_RANGE, -1)
    assert partition.log.start_offset == 0


def test_minus_one_deletes_all_there_is() -> None:
    partition, _ = new_partition()
    write(partition, 5)
    assert delete_records(partition, -1) == (errors.NONE, 5)
    assert partition.fetch(5, 1000).error == errors.NONE
    write(partition, 1)
    assert partition.fetch(5, 1000).records


def test_the_last_stable_offset_is_never_before_the_start() -> None:
    partition, storage = new_partition()
    batch = encode_batch([(b"k", b"v")], NOW, 7, 0, 0, transactional=True)
    partition.append(batch, NOW, verified=True)
    write(partition, 5)
    woken: list[int] = []
    partition.on_last_stable_offset = lambda p: woken.append(p.last_stable_offset)
    assert delete_records(partition, 4) == (errors.NONE, 4)
    assert partition.last_stable_offset == 4
    assert woken == [4]
    recovered = recover(after_kill(storage).open_log("t", 0, bytes(16), LogConfig()), "t", 0)
    assert recovered.last_stable_offset == 4
    for p in (partition, recovered):
        p.write_marker(7, 0, False, 0, NOW)
        assert p.last_stable_offset == p.log.end_offset


def test_a_disk_that_cannot_keep_the_new_start_refuses() -> None:
    class Full(MemoryLog):
        def advance_start(self, offset: int) -> None:
            raise StorageFailed("no space left")

    partition = Partition(Full(), "t", 0)
    write(partition, 5)
    assert delete_records(partition, 3) == (errors.KAFKA_STORAGE_ERROR, -1)
    assert partition.log.start_offset == 0


def test_records_are_not_deleted_where_the_new_start_cannot_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction that began before the start has to move to it."""
    partition, _ = new_partition()
    partition.append(encode_batch([(b"k", b"v")] * 5, NOW, 7, 0, 0, transactional=True), NOW, verified=True)
    write(partition, 5)

    def fail(log: MemoryLog, offset: int) -> int:
        raise StorageFailed("no descriptor left")

    with monkeypatch.context() as disk:
        disk.setattr(MemoryLog, "address_of", fail)
        assert delete_records(partition, 7) == (errors.KAFKA_STORAGE_ERROR, -1)
    assert (partition.log.start_offset, partition.last_stable_offset) == (0, 0)
    assert delete_records(partition, 7) == (errors.NONE, 7)
    assert partition.last_stable_offset == 7
