"""What the cleaner keeps, what it removes, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost.machines.log.interface import LogConfig, Rewrite, StorageFailed
from fencepost.machines.log.memory import MemoryLog, MemoryStorage
from fencepost.machines.partition.compaction import SLICE_RECORDS, Dirt, Policy, compact, find_dirt
from fencepost.machines.partition.deletion import delete_records
from fencepost.machines.partition.partition import Partition
from fencepost.machines.partition.recovery import replay
from fencepost.protocol import errors
from fencepost.protocol.batch import assemble, decode_marker, encode_batch, encode_marker, stamp
from fencepost.protocol.filtering import delete_horizon
from fencepost.protocol.records import Record, encode_records, iter_batches, iter_records
from fencepost.protocol.transaction_version import TV0, TV2, TransactionVersion

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
Pair = tuple[bytes | None, bytes | None]


def new_partition(segment_bytes: int = 1 << 20) -> Partition:
    log = MemoryLog(MemoryStorage(), LogConfig(segment_bytes=segment_bytes, compact=True))
    return Partition(log, "t", 0)


def write(partition: Partition, *pairs: Pair, codec: int = 0, at_ms: int = NOW) -> int:
    records = [Record(n, at_ms + n, key, value) for n, (key, value) in enumerate(pairs)]
    result = partition.append(encode_records(records, codec), at_ms)
    assert result.error == errors.NONE
    return result.base_offset


def write_txn(partition: Partition, producer_id: int, *pairs: Pair, epoch: int = 0, sequence: int = 0) -> None:
    batch = encode_batch(pairs, NOW, producer_id, epoch, sequence, transactional=True)
    assert partition.append(batch, NOW, verified=True).error == errors.NONE


def end(
    partition: Partition, producer_id: int, commit: bool, epoch: int = 0, version: TransactionVersion = TV0
) -> None:
    assert partition.write_marker(producer_id, epoch, commit, 0, NOW, version) == errors.NONE


def clean(
    partition: Partition,
    now_ms: int = NOW,
    policy: Policy = Policy(),  # noqa: B008
    *,
    closes: bool = True,
) -> Dirt:
    if closes:
        partition.log.roll()
    dirt = find_dirt(partition.log, partition.last_stable_offset, 0, now_ms)
    for _ in compact(partition.log, dirt, partition.producers.by_id, policy, now_ms):
        pass
    return dirt


def stored(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that is left, from any producer."""
    data = partition.log.read(0, 1 << 30, partition.log.end_address)
    return [
        (record.offset, record.key, record.value)
        for header, batch in iter_batches(data)
        if not header.is_control
        for record in iter_records(batch)
    ]


def markers(partition: Partition) -> list[tuple[int, bool]]:
    data = partition.log.read(0, 1 << 30, partition.log.end_address)
    found = [decode_marker(batch) for _, batch in iter_batches(data)]
    return [(marker.offset, marker.commit) for marker in found if marker is not None]


def headers(partition: Partition) -> Sequence[tuple[int, int, int]]:
    """First and last offset of every batch, and how many records are left in it."""
    data = partition.log.read(0, 1 << 30, partition.log.end_address)
    return [(header.base_offset, header.last_offset, header.record_count) for header, _ in iter_batches(data)]


def test_a_batch_that_loses_nothing_stays_byte_for_byte() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"), (b"b", b"1"), codec=4)
    before = partition.log.read(0, 1 << 20, partition.log.end_address)
    write(partition, (b"c", b"1"))
    write(partition, (b"c", b"2"))
    clean(partition)
    assert partition.log.read(0, 1 << 20, partition.log.end_address).startswith(before)


def test_a_record_without_a_key_goes() -> None:
    partition = new_partition()
    write(partition, (None, b"1"), (b"a", b"1"))
    write(partition, (b"b", b"1"))
    clean(partition)
    assert stored(partition) == [(1, b"a", b"1"), (2, b"b", b"1")]


def test_the_active_segment_and_the_open_transactions_are_left_alone() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"))
    write(partition, (b"a", b"2"))
    assert clean(partition, closes=False).until == 0
    assert len(stored(partition)) == 2
    partition.log.roll()
    write_txn(partition, 7, (b"a", b"3"))
    write(partition, (b"a", b"4"))
    assert clean(partition).until == 2
    assert [offset for offset, _, _ in stored(partition)] == [1, 2, 3]


def test_young_records_are_left_alone_for_the_lag() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"), at_ms=NOW - 5000)
    partition.log.roll()
    write(partition, (b"a", b"2"), at_ms=NOW)
    partition.log.roll()
    assert find_dirt(partition.log, 2, 10_000, NOW).until == 0
    assert find_dirt(partition.log, 2, 1_000, NOW).until == 1
    assert find_dirt(partition.log, 2, 0, NOW).until == 2


def test_a_tombstone_removes_earlier_records_and_is_removed_after_its_time() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"))
    write(partition, (b"a", None), (b"b", b"1"))
    write(partition, (b"c", b"1"))
    clean(partition)
    assert stored(partition) == [(1, b"a", None), (2, b"b", b"1"), (3, b"c", b"1")]
    header, batch = next(iter_batches(partition.log.read(0, 1 << 20, partition.log.end_address)))
    assert delete_horizon(header) == NOW + DAY_MS
    assert [record.timestamp for record in iter_records(batch)] == [NOW, NOW + 1], "timestamps must not change"
    # The day begins with the first cleaning, and every cleaning needs a dirty segment.
    write(partition, (b"d", b"1"))
    clean(partition, NOW + DAY_MS - 1)
    assert (1, b"a", None) in stored(partition)
    write(partition, (b"d", b"2"))
    clean(partition, NOW + DAY_MS)
    assert stored(partition) == [(2, b"b", b"1"), (3, b"c", b"1"), (5, b"d", b"2")]


def test_aborted_records_are_removed_and_remove_no_others() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"))
    write_txn(partition, 7, (b"a", b"aborted"), (b"b", b"aborted"))
    end(partition, 7, False)
    write(partition, (b"c", b"1"))
    clean(partition)
    assert [pair for pair in stored(partition) if pair[0] != 3] == [(0, b"a", b"1"), (4, b"c", b"1")]


def test_a_marker_stays_as_long_as_a_record_of_its_transaction_and_then_for_its_time() -> None:
    partition = new_partition()
    write_txn(partition, 7, (b"a", b"1"))
    end(partition, 7, True)
    write_txn(partition, 7, (b"b", b"1"), sequence=1)
    end(partition, 7, True)
    partition.log.roll()
    clean(partition)
    assert markers(partition) == [(1, True), (3, True)]
    write(partition, (b"a", b"2"))
    clean(partition)
    assert markers(partition) == [(1, True), (3, True)], "for a day"
    write(partition, (b"a", b"3"))
    clean(partition, NOW + DAY_MS - 1)
    assert markers(partition) == [(1, True), (3, True)]
    write(partition, (b"a", b"4"))
    clean(partition, NOW + DAY_MS)
    assert markers(partition) == [(3, True)]


def test_without_readers_a_marker_is_removed_with_its_data() -> None:
    partition = new_partition()
    for number in range(5):
        write_txn(partition, 7, (b"a", b"%d" % number), sequence=number)
        end(partition, 7, True)
    clean(partition, policy=Policy(keeps_markers=False))
    assert stored(partition) == [(8, b"a", b"4")]
    assert markers(partition) == [(9, True)]


def test_the_last_batch_of_a_living_producer_stays_without_its_records() -> None:
    partition = new_partition()
    write_txn(partition, 7, (b"a", b"1"), (b"b", b"1"))
    write_txn(partition, 7, (b"a", b"2"), (b"b", b"2"), sequence=2)
    end(partition, 7, True)
    write(partition, (b"a", b"3"), (b"b", b"3"))
    clean(partition)
    assert headers(partition) == [(2, 3, 0), (4, 4, 1), (5, 6, 2)]
    recovered = Partition(partition.log, "t", 0)
    replay(recovered, 0)
    assert recovered.producers.by_id[7].batches[-1].last_sequence == 3
    assert recovered.last_stable_offset == partition.last_stable_offset
    # Once the producer is forgotten, only the marker is kept, for its time.
    partition.expire_producers(NOW + 2 * DAY_MS)
    write(partition, (b"c", b"1"))
    clean(partition, NOW)
    assert headers(partition) == [(4, 4, 1), (5, 6, 2), (7, 7, 1)]


def test_the_last_marker_of_a_producer_without_data_stays_whole_for_its_epoch() -> None:
    partition = new_partition()
    for epoch in range(3):
        write_txn(partition, 7, (b"a", b"%d" % epoch), epoch=epoch)
        end(partition, 7, True, epoch=epoch + 1, version=TV2)
    write(partition, (b"a", b"9"))
    for days in range(3):
        clean(partition, NOW + days * DAY_MS)
        write(partition, (b"b", b"%d" % days))
    assert markers(partition) == [(5, True)]
    recovered = Partition(partition.log, "t", 0)
    replay(recovered, 0)
    assert recovered.epoch_of(7) == 3


def test_the_end_of_a_segment_stays_known_when_its_records_go() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"), (b"b", b"1"))
    partition.log.roll()
    write(partition, (b"a", b"2"), (b"b", b"2"))
    partition.log.roll()
    clean(partition, policy=Policy(segment_bytes=150))
    assert [segment.base_offset for segment in partition.log.segments()] == [0, 2, 4]
    assert headers(partition) == [(0, 1, 0), (2, 3, 2)]


def test_with_room_for_few_keys_several_rounds_get_there() -> None:
    partition = new_partition()
    for value in (b"1", b"2"):
        for number in range(20):
            write(partition, (b"%d" % number, value))
    partition.log.roll()
    rounds = 0
    while partition.log.clean_offset < 40:
        clean(partition, policy=Policy(max_keys=7))
        rounds += 1
    assert rounds == 6
    assert stored(partition) == [(20 + n, b"%d" % n, b"2") for n in range(20)]


def test_a_batch_that_cannot_be_decoded_is_kept_as_it_is() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"))
    log = partition.log
    torn = stamp(encode_batch([(b"a", b"2")], NOW), 1, 0)
    torn = torn[:-1] + b"\x05"  # It claims five headers and has none.
    log.append(torn, 1, 1, NOW)
    damaged = stamp(encode_records([Record(0, NOW, b"a", b"3"), Record(1, NOW, b"b", b"3")]), 2, 0)
    log.append(damaged[:-3] + b"!" + damaged[-2:], 2, 3, NOW)
    partition = Partition(log, "t", 0)
    write(partition, (b"b", b"4"))
    clean(partition)
    data = log.read(0, 1 << 20, log.end_address)
    assert damaged[:-3] + b"!" + damaged[-2:] in data, "its checksum must still show that it is damaged"


@pytest.mark.parametrize("payload", [b"", b"\0", b"\xff", b"\xff" * 5, b"\x08\0\0\0\2", b"\x0c\0\0\0\x7e\0\0"])
def test_one_record_that_is_none_stays_as_it_is(payload: bytes) -> None:
    log = new_partition().log
    batch = stamp(assemble(payload, 1, 0, NOW, NOW), 0, 0)
    log.append(batch, 0, 0, NOW)
    partition = Partition(log, "t", 0)
    clean(partition)
    assert log.clean_offset == 1
    write(partition, (b"a", b"1"))
    write(partition, (b"a", b"2"))
    clean(partition)
    assert next(iter_batches(log.read(0, 1 << 20, log.end_address)))[1] == batch
    assert headers(partition)[1:] == [(2, 2, 1)]


def test_a_round_stops_after_every_small_piece_of_work() -> None:
    partition = new_partition()
    for value in (b"1", b"2"):
        write(partition, *((b"%d" % n, value) for n in range(10 * SLICE_RECORDS)))
    partition.log.roll()
    dirt = find_dirt(partition.log, partition.last_stable_offset, 0, NOW)
    work = compact(partition.log, dirt, {}, Policy(), NOW)
    assert sum(1 for _ in work) > 4 * 10
    assert len(stored(partition)) == 10 * SLICE_RECORDS


def test_a_round_that_is_left_off_changes_nothing() -> None:
    partition = new_partition()
    write(partition, (b"a", b"1"))
    write(partition, (b"a", b"2"))
    partition.log.roll()
    work = compact(partition.log, find_dirt(partition.log, 2, 0, NOW), {}, Policy(), NOW)
    next(work)
    next(work)
    work.close()
    assert len(stored(partition)) == 2
    assert partition.log.clean_offset == 0


def test_segments_that_are_deleted_meanwhile_do_not_come_back() -> None:
    partition = new_partition()
    for number in range(4):
        write(partition, (b"a", b"%d" % number))
        partition.log.roll()
    work = compact(partition.log, find_dirt(partition.log, 4, 0, NOW), {}, Policy(), NOW)
    for _ in range(5):
        next(work)  # The keys of four segments, and the first segment again.
    delete_records(partition, 2)
    for _ in work:
        pass
    assert [offset for offset, _, _ in stored(partition)] == [2, 3]
    assert partition.log.clean_offset == 0


def test_a_failing_disk_ends_the_round() -> None:
    class Full(MemoryLog):
        def rewrite(self, base_offset: int, end_offset: int) -> Rewrite:
            raise StorageFailed("no space left")

    partition = Partition(Full(), "t", 0)
    write(partition, (b"a", b"1"))
    partition.log.roll()
    with pytest.raises(StorageFailed):
        clean(partition)
    assert partition.log.clean_offset == 0


def test_a_damaged_key_removes_no_record_of_another_key_and_the_damage_stays() -> None:
    partition = new_partition()
    log = partition.log
    write(partition, (b"a", b"1"))
    write(partition, (b"b", b"1"))
    damaged = stamp(encode_batch([(b"c", b"2")], NOW), 2, 0).replace(b"\x02c", b"\x02a")  # One bit of the key.
    log.append(damaged, 2, 2, NOW)
    damaged_marker = bytearray(encode_marker(7, 0, True, 0, NOW, 3))
    damaged_marker[-1] ^= 1
    log.append(bytes(damaged_marker), 3, 3, NOW)
    write(partition, (b"b", b"2"))
    clean(partition)
    assert stored(partition)[0] == (0, b"a", b"1")
    data = log.read(0, 1 << 20, log.end_address)
    assert damaged in data, "a reader must see that it is damaged"
    assert bytes(damaged_marker) in data
    assert (1, b"b", b"1") not in stored(partition)
