"""An append that breaks off, at whatever line, leaves the state in memory as the log has it, or stops the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.coordinator.runtime import StateLog, Writer
from fencepost.broker.coordinator.txn_shard import TxnShard
from fencepost.machines.group.decision import LogRecord
from fencepost.machines.group.offsets import CommittedOffset, OffsetRecord
from fencepost.machines.group.records import decode, encode
from fencepost.machines.group.shard import GroupShard
from fencepost.machines.log.interface import Log, LogConfig, LogTailUnknown
from fencepost.machines.log.memory import MemoryLog
from fencepost.machines.partition.partition import MAX_INT64, Partition
from fencepost.machines.partition.recovery import recover
from fencepost.machines.txn.states import ONGOING, Txn
from fencepost.protocol import errors
from fencepost.protocol.batch import (
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    assemble,
    encode_batch,
    encode_record,
)
from fencepost.protocol.transaction_version import TV2, TransactionVersion
from fencepost.server.storage import DataFolder
from tests.broken_off import break_off

NOW_MS = 1_700_000_000_000
Work = Callable[[Partition], object]


def batch(sequence: int = -1, producer_id: int = -1, transactional: bool = False) -> bytes:
    epoch = -1 if producer_id < 0 else 0
    return encode_batch([(b"key", b"value"), (None, b"x")], NOW_MS, producer_id, epoch, sequence, transactional)


def send(partition: Partition, sequence: int = -1, producer_id: int = -1, transactional: bool = False) -> object:
    return partition.append(batch(sequence, producer_id, transactional), NOW_MS, verified=True)


def begin_two_txns(partition: Partition) -> None:
    send(partition, 0, 7, True)
    send(partition, 0, 8, True)
    send(partition)


def nothing(partition: Partition) -> None:
    pass


def marker(commit: bool) -> Work:
    return lambda partition: partition.write_marker(7, 0, commit, 0, NOW_MS)


# What happens before, and the append that breaks off.
APPENDS: dict[str, tuple[Work, Work]] = {
    "a batch without a producer": (nothing, send),
    "the first batch of a producer": (nothing, lambda partition: send(partition, 0, 7)),
    "another batch of a producer": (lambda partition: send(partition, 0, 7), lambda partition: send(partition, 2, 7)),
    "the first batch of a transaction": (send, lambda partition: send(partition, 0, 7, True)),
    "another batch of a transaction": (begin_two_txns, lambda partition: send(partition, 2, 7, True)),
    "a commit marker": (begin_two_txns, marker(True)),
    "an abort marker": (begin_two_txns, marker(False)),
    "a marker of a new producer": (nothing, marker(True)),
    "a record of a coordinator": (begin_two_txns, lambda partition: partition.append_record(b"k", b"v", NOW_MS)),
    "a batch of a coordinator": (nothing, lambda partition: partition.append_internal(batch())),
    "offsets of a transaction": (nothing, lambda partition: partition.append_internal(batch(0, 7, True))),
}


@pytest.fixture(params=["memory", "files"])
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Log]]:
    if request.param == "memory":
        yield MemoryLog
        return
    indexes = count()
    # Without a boot no log is noted, so that an append runs as many lines in the last log as in the first.
    folder = DataFolder(str(tmp_path), boot=lambda: None)
    # Each batch after the first gets an entry in the index.
    config = LogConfig(index_interval_bytes=1)
    yield lambda: folder.open_log("orders", next(indexes), bytes(16), config)
    folder.close()


def state_of(partition: Partition) -> tuple[object, ...]:
    return (
        partition.producers.by_id,
        partition.producers.open_txns,
        partition.last_stable_offset,
        partition.stable_address,
        partition.high_watermark,
        partition.log.aborted(0, partition.log.end_offset) + partition.unindexed,
    )


@pytest.mark.parametrize("name", APPENDS)
def test_an_append_that_breaks_off_leaves_memory_as_the_log_or_stops_the_process(
    name: str, new_log: Callable[[], Log]
) -> None:
    before, append = APPENDS[name]
    stopped = 0
    for number in count(1):
        partition = recover(new_log(), "orders", 0)
        before(partition)
        broken_off = break_off(lambda: append(partition), number)  # noqa: B023
        if broken_off is None:
            break
        place, raised = broken_off
        if isinstance(raised, LogTailUnknown):
            stopped += 1
        else:
            assert state_of(partition) == state_of(recover(partition.log, "orders", 0)), place
    assert stopped, "the lines behind the write were broken off too"


def numbers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.sampled_from((least, least + 1, -1, 0, 1, most - 1, most)).filter(lambda n: least <= n <= most)


@given(
    timestamps=st.lists(numbers(-MAX_INT64 - 1, MAX_INT64), min_size=6, max_size=6),
    producer=st.tuples(numbers(0, MAX_INT64), numbers(0, MAX_PRODUCER_EPOCH), numbers(0, MAX_SEQUENCE)),
    transactional=st.booleans(),
)
def test_no_header_of_a_client_breaks_an_append_off(
    timestamps: list[int], producer: tuple[int, int, int], transactional: bool
) -> None:
    """Whatever its numbers: a client must not be able to stop the process."""
    producer_id, epoch, sequence = producer
    records = b"".join(encode_record(None, b"x", delta) for delta in range(3))
    with TemporaryDirectory() as path:
        folder = DataFolder(path)
        partition = recover(folder.open_log("orders", 0, bytes(16), LogConfig(index_interval_bytes=1)), "orders", 0)
        partition.timestamp_before_max_ms = partition.timestamp_after_max_ms = 2 * MAX_INT64
        for number in range(3):
            first, last = timestamps[2 * number : 2 * number + 2]
            attributes = TRANSACTIONAL if transactional else 0
            sent = assemble(
                records, 3, attributes, first, last, producer_id, epoch, (sequence + 3 * number) & MAX_SEQUENCE
            )
            assert partition.append(sent, NOW_MS, verified=True).error == errors.NONE
        if transactional:
            assert partition.write_marker(producer_id, epoch, False, 0, NOW_MS) == errors.NONE
        # A recovery may save a snapshot, which keeps one timestamp for a producer.
        assert state_of(partition)[1:] == state_of(recover(partition.log, "orders", 0))[1:]
        partition.save_snapshot()
        folder.close()


class Features:
    transaction_version: TransactionVersion = TV2


def offset(number: int) -> OffsetRecord:
    return OffsetRecord("g", "orders", number, CommittedOffset(number, -1, "", NOW_MS))


def txn_shard(partition: Partition) -> tuple[StateLog[Any], Callable[[], object]]:
    shard = TxnShard(partition, Features())
    shard.load()
    return shard.log, lambda: shard.txns


def group_shard(partition: Partition) -> tuple[StateLog[Any], Callable[[], object]]:
    shard = GroupShard()
    log: StateLog[LogRecord] = StateLog(partition, shard, encode, decode)
    log.load()
    return log, shard.durable


TXN = Txn("t", 7, 0, 60_000)
BEGUN = TXN._replace(state=ONGOING, partitions=frozenset({("orders", 0)}))
TWO = [offset(1), offset(2)]
Write = Callable[[StateLog[Any]], object]
# Whose state it is, what happens before, and the write that breaks off.
WRITES: dict[str, tuple[Callable[[Partition], tuple[StateLog[Any], Callable[[], object]]], Write, Write]] = {
    "a transactional id": (
        txn_shard,
        lambda log: log.write_one(TXN, NOW_MS),
        lambda log: log.write_one(BEGUN, NOW_MS),
    ),
    "offsets": (
        group_shard,
        lambda log: log.write([offset(1)], NOW_MS),
        lambda log: log.write(TWO, NOW_MS),
    ),
    "offsets of a transaction": (
        group_shard,
        lambda log: log.write([offset(1)], NOW_MS),
        lambda log: log.write(TWO, NOW_MS, Writer(7, 0)),
    ),
    "a marker for offsets": (
        group_shard,
        lambda log: log.write(TWO, NOW_MS, Writer(7, 0)),
        lambda log: log.partition.write_marker(7, 0, True, 0, NOW_MS),
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_coordinators_write_that_breaks_off_leaves_its_state_as_the_log_or_stops_the_process(name: str) -> None:
    shard_of, before, write = WRITES[name]
    write(shard_of(recover(MemoryLog(), "__internal", 0))[0])  # The first one compiles codecs.
    stopped = 0
    for number in count(1):
        partition = recover(MemoryLog(), "__internal", 0)
        log, state = shard_of(partition)
        before(log)
        broken_off = break_off(lambda: write(log), number)  # noqa: B023
        if broken_off is None:
            break
        place, raised = broken_off
        if isinstance(raised, LogTailUnknown):
            stopped += 1
        else:
            _, loaded = shard_of(recover(partition.log, "__internal", 0))
            assert state() == loaded(), place
    assert stopped, "the lines behind the write were broken off too"
