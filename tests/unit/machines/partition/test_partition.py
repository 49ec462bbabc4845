"""Claims about one partition: offsets, fencing, transactions, what readers see, and recovery."""

from __future__ import annotations

import pytest

from fencepost.machines.log.interface import AbortedTxn
from fencepost.machines.log.memory import MemoryLog, MemoryStorage
from fencepost.machines.partition import list_offsets
from fencepost.machines.partition.list_offsets import NOT_FOUND, offset_for
from fencepost.machines.partition.partition import AppendResult, Partition
from fencepost.machines.partition.producers import (
    Producer,
    Producers,
    SentBatch,
    decode_snapshot,
    encode_snapshot,
)
from fencepost.machines.partition.recovery import recover
from fencepost.protocol import errors
from fencepost.protocol.batch import (
    Corrupt,
    assemble,
    decode_header,
    encode_batch,
    encode_record,
)
from fencepost.protocol.records import Record, encode_records
from fencepost.protocol.transaction_version import TV0, TransactionVersion

NOW = 1_700_000_000_000
PID = 1000


def new_partition(storage: MemoryStorage | None = None) -> Partition:
    return Partition(MemoryLog(storage), "orders", 0)


def batch(*values: bytes, pid: int = -1, epoch: int = -1, seq: int = -1, txn: bool = False) -> bytes:
    return encode_batch([(b"k", value) for value in values], NOW, pid, epoch, seq, txn)


def send(
    partition: Partition, seq: int, count: int = 1, *, epoch: int = 0, pid: int = PID, version: TransactionVersion = TV0
) -> AppendResult:
    """Append a transactional batch that the coordinator vouches for."""
    values = [b"%d-%d" % (pid, seq + i) for i in range(count)]
    return partition.append(
        batch(*values, pid=pid, epoch=epoch, seq=seq, txn=True),
        NOW,
        verified=True,
        transaction_version=version,
    )


def idempotent(partition: Partition, seq: int, count: int = 1, epoch: int = 0, pid: int = PID) -> AppendResult:
    return partition.append(batch(*[b"v"] * count, pid=pid, epoch=epoch, seq=seq), NOW)


def end(
    partition: Partition,
    commit: bool,
    *,
    epoch: int = 0,
    pid: int = PID,
    version: TransactionVersion = TV0,
    coord: int = 0,
) -> int:
    return partition.write_marker(pid, epoch, commit, coord, NOW, version)


# Offsets.


def test_a_scrap_behind_the_batch_is_not_stored() -> None:
    p = new_partition()
    assert p.append(batch(b"a") + b"scrap", NOW).error == errors.NONE
    assert p.fetch(0, 1 << 20).records == p.log.read(0, 1 << 20, len(batch(b"a")))


def test_log_append_time_is_the_brokers() -> None:
    p = new_partition()
    p.log_append_time = True
    assert p.append(batch(b"a", b"b"), NOW + 5).log_append_time == NOW + 5
    assert offset_for(p, NOW + 1) == (0, NOW + 5, 0)


def test_a_timestamp_too_far_in_the_future_is_refused() -> None:
    p = new_partition()
    assert p.append(batch(b"a"), NOW - 3_600_000).error == errors.NONE
    assert p.append(batch(b"a"), NOW - 3_600_001).error == errors.INVALID_TIMESTAMP


def test_a_timestamp_too_far_in_the_past_is_refused_where_the_topic_says_so() -> None:
    p = new_partition()
    p.timestamp_before_max_ms = 1000
    assert p.append(batch(b"a"), NOW + 1000).error == errors.NONE
    assert p.append(batch(b"a"), NOW + 1001).error == errors.INVALID_TIMESTAMP


def test_a_compacted_topic_refuses_a_record_without_a_key() -> None:
    p = new_partition()
    p.compacted = True
    assert p.append(batch(b"a"), NOW).error == errors.NONE
    refused = p.append(encode_batch([(b"k", b"v"), (None, b"v")], NOW), NOW)
    assert refused.error == errors.INVALID_RECORD
    reason = "Compacted topic cannot accept message without key in topic partition orders-0"
    assert list(refused.record_errors) == [(1, reason)]
    assert refused.message == (
        "One or more records have been rejected due to 1 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{reason}')]"
    )


def test_a_batch_whose_header_alone_has_a_wrong_timestamp_is_refused() -> None:
    payload = encode_record(b"k", b"v")
    refused = new_partition().append(assemble(payload, 1, 0, NOW, NOW + 9_000_000), NOW)
    assert refused.error == errors.INVALID_TIMESTAMP
    assert refused.message == f"timestamp {NOW + 9_000_000} is not between {NOW - (2**63 - 1)} and {NOW + 3_600_000}"
    assert refused.record_errors == ()


# Transactions.


def test_an_unverified_transactional_batch_is_refused() -> None:
    p = new_partition()
    data = batch(b"a", pid=PID, epoch=0, seq=0, txn=True)
    refused = p.append(data, NOW)
    assert refused.error == errors.INVALID_TXN_STATE
    assert refused.message == f"producer {PID} with epoch 0 has no open transaction on orders-0"
    assert p.append(data, NOW, verified=True).error == errors.NONE


def test_an_open_transaction_needs_no_further_verification() -> None:
    p = new_partition()
    send(p, 0)
    assert p.has_open_txn(PID, 0)
    assert not p.has_open_txn(PID, 1)
    assert p.append(batch(b"b", pid=PID, epoch=0, seq=1, txn=True), NOW).error == errors.NONE
    end(p, True)
    assert not p.has_open_txn(PID, 0)
    late = p.append(batch(b"c", pid=PID, epoch=0, seq=2, txn=True), NOW)
    assert late.error == errors.INVALID_TXN_STATE


def test_a_duplicate_is_answered_even_after_its_transaction_ended() -> None:
    p = new_partition()
    send(p, 0, 2)
    end(p, True)
    again = p.append(batch(b"x", b"y", pid=PID, epoch=0, seq=0, txn=True), NOW)
    assert (again.error, again.base_offset, again.duplicate) == (errors.NONE, 0, True)


def test_the_sequences_of_an_earlier_transaction_are_no_duplicate_in_the_next_one() -> None:
    """A client that forgot its earlier records would get a success for new records that are not stored."""
    p = new_partition()
    send(p, 0, 2)
    end(p, False)
    again = batch(b"v", b"w", pid=PID, epoch=0, seq=0, txn=True)
    assert p.append(again, NOW, verified=True).error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(p, 2, 1)
    assert p.append(again, NOW).error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    of_this_one = p.append(batch(b"x", pid=PID, epoch=0, seq=2, txn=True), NOW)
    assert (of_this_one.error, of_this_one.duplicate) == (errors.NONE, True)


# Reading.


def test_offsets_are_found_by_time() -> None:
    p = new_partition()
    for base in (NOW, NOW + 100):
        p.append(encode_records([Record(0, base + 10 * i, b"k", b"v") for i in range(3)], codec=4), NOW)
    assert offset_for(p, 0) == (0, NOW, 0)
    assert offset_for(p, NOW + 11) == (2, NOW + 20, 0)
    assert offset_for(p, NOW + 21) == (3, NOW + 100, 0)
    assert offset_for(p, NOW + 121) == NOT_FOUND
    assert offset_for(p, -1) == (6, -1, 0)
    assert offset_for(p, -2) == (0, -1, 0)
    assert offset_for(p, -3) == (5, NOW + 120, 0)


def test_a_batch_of_very_many_records_is_found_by_time_but_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "MAX_SEARCHED_RECORDS", 2)
    p = new_partition()
    for count in (2, 3):
        records = [Record(0, NOW + 10 * n, None, b"v") for n in range(count)]
        assert p.append(encode_records(records), NOW).error == errors.NONE
    assert offset_for(p, NOW + 10) == (1, NOW + 10, 0)
    assert offset_for(p, NOW + 11) == (2, NOW + 20, 0)


def test_latest_and_times_are_held_at_the_last_stable_offset() -> None:
    p = new_partition()
    p.append(encode_records([Record(0, NOW, b"k", b"v")]), NOW)
    data = encode_records([Record(0, NOW + 5, b"k", b"v")], 0, 0x10, PID, 0, 0)
    p.append(data, NOW, verified=True)
    assert offset_for(p, -1, read_committed=True).offset == 1
    assert offset_for(p, -1).offset == 2
    assert offset_for(p, NOW + 1).offset == 1
    assert offset_for(p, NOW + 1, read_committed=True) == NOT_FOUND
    assert offset_for(p, -3, read_committed=True) == NOT_FOUND


def test_an_empty_log_has_no_offset_for_a_time() -> None:
    p = new_partition()
    assert offset_for(p, 0) == offset_for(p, -3) == NOT_FOUND


def test_a_partition_reports_each_move_of_its_high_watermark_and_last_stable_offset() -> None:
    told: list[tuple[str, int]] = []
    p = new_partition()
    p.on_high_watermark = lambda q: told.append(("hw", q.high_watermark))
    p.on_last_stable_offset = lambda q: told.append(("lso", q.last_stable_offset))
    p.append(batch(b"a"), NOW)
    send(p, 0)
    p.append(batch(b"b"), NOW)
    end(p, True)
    assert told == [("hw", 1), ("lso", 1), ("hw", 2), ("hw", 3), ("hw", 4), ("lso", 4)]


# Offset commits of transactions.


def test_a_coordinator_writes_for_a_producer_without_sequences() -> None:
    p = new_partition()
    assert p.check_offset_commit(PID, 0, verified=False) == errors.INVALID_TXN_STATE
    assert p.check_offset_commit(PID, 0, verified=True) == errors.NONE
    commit = encode_batch([(b"group", b"offset")], NOW, PID, 0, -1, transactional=True)
    assert p.append_internal(commit) == 0
    assert p.check_offset_commit(PID, 0, verified=False) == errors.NONE
    assert p.append_internal(commit) == 1
    assert (p.last_stable_offset, p.has_open_txn(PID, 0)) == (0, True)
    assert end(p, True) == errors.NONE
    assert p.check_offset_commit(PID, 0, verified=False) == errors.INVALID_TXN_STATE
    end(p, True, epoch=1)
    assert p.check_offset_commit(PID, 0, verified=True) == errors.INVALID_PRODUCER_EPOCH


# Describing and forgetting producers.


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    p = new_partition()
    idempotent(p, 0, pid=1)
    send(p, 0, pid=2)
    assert p.expire_producers(NOW + 999, 1000) == []
    assert p.expire_producers(NOW + 1000, 1000) == [1]
    assert (p.epoch_of(1), p.epoch_of(2)) == (-1, 0)


# A full disk.


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    storage = MemoryStorage()
    p = new_partition(storage)
    send(p, 0)
    before = (p.describe_producers(), p.high_watermark, p.last_stable_offset)
    storage.full = True
    assert send(p, 1).error == errors.KAFKA_STORAGE_ERROR
    assert end(p, True) == errors.KAFKA_STORAGE_ERROR
    assert (p.describe_producers(), p.high_watermark, p.last_stable_offset) == before
    storage.full = False
    assert send(p, 1).error == errors.NONE
    assert end(p, True) == errors.NONE


def test_readers_see_an_abort_that_the_index_cannot_store() -> None:
    from fencepost.machines.log.interface import StorageFailed

    class Stubborn(MemoryLog):
        full = True
        snapshots = 0

        def append_aborted(self, entry: AbortedTxn) -> None:
            if self.full:
                raise StorageFailed("no space for the index")
            super().append_aborted(entry)

        def save_snapshot(self, snapshot: bytes) -> None:
            self.snapshots += 1

    log = Stubborn()
    p = Partition(log, "orders", 0)
    send(p, 0, pid=1)
    end(p, False, pid=1)
    assert p.fetch(0, 1 << 20, read_committed=True).aborted == [(1, 0)]
    p.save_snapshot()
    assert log.snapshots == 0
    log.full = False
    p.save_snapshot()
    assert (log.snapshots, p.unindexed) == (1, [])
    assert p.fetch(0, 1 << 20, read_committed=True).aborted == [(1, 0)]


# Recovery.


def recovered(p: Partition) -> Partition:
    return recover(p.log, p.topic, p.index)


def test_an_entry_that_the_index_has_is_not_added_twice() -> None:
    p = new_partition()
    send(p, 0)
    end(p, False)
    q = recovered(recovered(p))
    assert q.fetch(0, 1 << 20, read_committed=True).aborted == [(PID, 0)]


def test_an_entry_that_the_index_lost_is_added_again() -> None:
    p = new_partition()
    for pid in (1, 2):
        send(p, 0, pid=pid)
    for pid in (1, 2):
        end(p, False, pid=pid)
    assert isinstance(p.log, MemoryLog)
    lost = p.log._aborted.pop()
    recovered(p)
    assert p.log.aborted(0, 100)[1:] == [lost]


def test_a_broken_snapshot_means_a_longer_replay() -> None:
    p = new_partition()
    send(p, 0, 2)
    p.log.save_snapshot(b"\0\1 this is no snapshot")
    assert recovered(p).producers.by_id == p.producers.by_id


def test_producers_that_were_silent_too_long_do_not_come_back() -> None:
    p = new_partition()
    idempotent(p, 0, pid=1)
    send(p, 0, pid=2)
    q = recover(p.log, "orders", 0, now_ms=NOW + 86_400_000)
    assert (q.epoch_of(1), q.epoch_of(2)) == (-1, 0)


def test_a_leader_knows_those_before_it_by_what_they_wrote() -> None:
    log = MemoryLog()
    for epoch in (1, 3, 4):
        p = recover(log, "orders", 0, leader_epoch=epoch)
        p.append(batch(b"a"), NOW)
    assert [p.leader_epochs.at(offset) for offset in range(3)] == [1, 3, 4]
    assert [p.leader_epochs.end_of(epoch, log.end_offset) for epoch in (1, 3, 4)] == [(1, 1), (3, 2), (4, 3)]
    # Not every leader writes.
    p = recover(log, "orders", 0, leader_epoch=7)
    assert p.leader_epochs.current == 7
    assert p.leader_epochs.end_of(5, log.end_offset) == (4, 3)


def test_a_snapshot_is_taken_when_the_log_wants_one() -> None:
    class Eager(MemoryLog):
        def wants_snapshot(self) -> bool:
            return self.end_offset == 3

    p = Partition(Eager(), "orders", 0)
    for seq in range(3):
        idempotent(p, seq)
    saved = p.log.load_snapshot()
    assert saved is not None
    assert (saved[0], decode_snapshot(saved[1])[PID].batches[-1].last_sequence) == (3, 2)


# Snapshots.


def test_a_snapshot_has_kafkas_layout() -> None:
    producers = Producers()
    producers.apply_batch(5, 2, SentBatch(10, 12, 102, NOW), True, 100, 0)
    snapshot = encode_snapshot(producers.by_id)
    assert snapshot[:2] == b"\0\1"
    assert snapshot[6:10] == b"\0\0\0\1"
    fields = b"".join(
        value.to_bytes(size, "big", signed=True)
        for value, size in ((5, 8), (2, 2), (12, 4), (102, 8), (2, 4), (NOW, 8), (-1, 4), (100, 8))
    )
    assert snapshot[10:] == fields
    assert decode_snapshot(snapshot) == producers.by_id


def test_a_snapshot_has_all_batches_that_a_producer_may_send_again_and_the_last_one_last() -> None:
    producers = Producers()
    for sequence in range(7):
        sent = SentBatch(sequence, sequence, 100 + sequence, NOW + sequence)
        producers.apply_batch(5, 2, sent, True, 100 + sequence, 0)
    snapshot = encode_snapshot(producers.by_id)
    assert decode_snapshot(snapshot) == producers.by_id
    last = Producers()
    last.apply_batch(5, 2, SentBatch(6, 6, 106, NOW + 6), True, 100, 0)
    assert snapshot.endswith(encode_snapshot(last.by_id)[10:]), "Kafka takes the last entry of a producer"


def test_a_producer_known_only_by_a_marker_survives_a_snapshot() -> None:
    producers = Producers()
    producers.apply_marker(5, 2, 7, NOW)
    (producer,) = decode_snapshot(encode_snapshot(producers.by_id)).values()
    assert producer == producers.by_id[5]
    assert producer.batches == []


@pytest.mark.parametrize("cut", [0, 3, 9, 20])
def test_a_damaged_snapshot_is_corrupt(cut: int) -> None:
    snapshot = encode_snapshot({1: Producer(0), 2: Producer(1)})
    with pytest.raises(Corrupt):
        decode_snapshot(snapshot[:cut])
    flipped = bytearray(snapshot)
    flipped[cut] ^= 1
    with pytest.raises(Corrupt):
        decode_snapshot(bytes(flipped))


def test_the_header_of_a_stored_marker_says_what_it_is() -> None:
    p = new_partition()
    end(p, True, epoch=3)
    header = decode_header(p.fetch(0, 1 << 20).records)
    assert (header.is_control, header.is_transactional, header.producer_epoch) == (True, True, 3)
