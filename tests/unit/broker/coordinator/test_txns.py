"""The transaction coordinator where transcripts do not reach: full disks, lost records, deleted topics, crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from fencepost.broker.config import parse
from fencepost.machines.log.memory import MemoryStorage
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.states import TxnState
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.memory_storage import after_kill, after_power_loss
from tests.pure_broker import Pending, PureBroker

CRASH_POINTS = [
    "txn.prepare.before",
    "txn.prepare.after",
    "txn.marker.before",
    "txn.marker.after",
    "txn.complete.before",
    "txn.complete.after",
]


class Crash(Exception):
    pass


class Scene(PureBroker):
    """A broker with one topic of two partitions and a producer of transaction version 2."""

    def __init__(self, *args: Any, syncs: list[Callable[[], None]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._syncs = syncs
        self.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 2, 1)], 1000), 5)
        self.producer_id, self.epoch = self.init()

    def init(self) -> tuple[int, int]:
        pending = self.send(InitProducerIdRequest("t1", 60_000), 5)
        if self._syncs:
            self._syncs.pop(0)()
        reply = pending.response
        assert reply.error_code == 0
        return reply.producer_id, reply.producer_epoch

    def produce(self, index: int, value: str = "x", sequence: int = 0) -> int:
        batch = encode_batch(
            [(None, value.encode())], self.now_ms, self.producer_id, self.epoch, sequence, transactional=True
        )
        partition = ProduceRequest.PartitionProduceData(index, batch)
        topic = ProduceRequest.TopicProduceData("orders", partition_data=[partition])
        reply = self.call(ProduceRequest("t1", -1, 1000, [topic]), 12)
        error: int = reply.responses[0].partition_responses[0].error_code
        return error

    def commit_offset(self, offset: int) -> int:
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset, -1, "")
        request = TxnOffsetCommitRequest("t1", "g1", self.producer_id, self.epoch, topics=[kind("orders", [partition])])
        error: int = self.call(request, 5).topics[0].partitions[0].error_code
        return error

    def committed_offset(self) -> tuple[int, int]:
        wanted = [OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])]
        found = self.call(OffsetFetchRequest("g1", wanted, require_stable=True), 7).topics[0].partitions[0]
        return found.error_code, found.committed_offset

    def end(self, commit: bool = True) -> Pending:
        return self.send(EndTxnRequest("t1", self.producer_id, self.epoch, commit), 5)

    def commit_and_begin_again_with_tv1(self) -> EndTxnRequest:
        """Returns what commits: with version 1 it is the same for both transactions."""
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        add = AddPartitionsToTxnRequest((), "t1", self.producer_id, self.epoch, [kind("orders", [0])])
        commit = EndTxnRequest("t1", self.producer_id, self.epoch, True)
        self.call(add, 3)
        assert self.call(commit, 3).error_code == errors.NONE
        self.call(add, 3)
        return commit

    def end_of_epoch(self, epoch: int, current: int) -> tuple[int, int, int]:
        partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, current, epoch)
        topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic("orders", [partition])]
        found = self.call(OffsetForLeaderEpochRequest(-1, topics), 4).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    def state(self) -> TxnState:
        txn = self.cluster.txns.find("t1")
        assert txn is not None
        return txn.state

    def is_stable(self) -> bool:
        partitions = self.cluster.topics["orders"].partitions
        return all(p.last_stable_offset == p.high_watermark for p in partitions.values())


@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("reply", ["complete", "prepare"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_finished_whatever_point_the_process_dies_at(point: str, reply: str, commit: bool) -> None:
    def die(reached: str) -> None:
        if reached == point:
            raise Crash(point)

    broker = Scene({"fencepost.endtxn.reply": reply})
    assert [broker.produce(0), broker.produce(1), broker.commit_offset(5)] == [0, 0, 0]
    broker.cluster.crash_at = die
    with pytest.raises(Crash):
        broker.end(commit)
        broker.advance(0)
    broker.restart()
    if point == "txn.prepare.before":
        # Nothing was decided, so the client may ask again.
        assert broker.state() is TxnState.ONGOING
        assert broker.end(commit).response.error_code == 0
        broker.advance(0)
    assert broker.state() is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
    assert broker.is_stable()
    assert broker.committed_offset() == (0, 5 if commit else -1)


def test_what_cannot_be_aborted_at_the_start_is_aborted_as_soon_as_the_disk_lets_it() -> None:
    broker = Scene({"fencepost.flush.on.commit": "true"})
    broker.produce(0, "kept")
    storage = after_power_loss(broker.storage)
    storage.may_have_lost_appends = False  # The kernel does not tell one boot from another.
    storage._logs["orders", 0] = after_kill(broker.storage)._logs["orders", 0]
    with patch.object(Partition, "write_marker", return_value=errors.KAFKA_STORAGE_ERROR):
        broker.restart(storage)
        broker.advance(1_000)
        broker.producer_id, broker.epoch = broker.init()
        assert broker.produce(0, "next") == errors.CONCURRENT_TRANSACTIONS, "it would be committed with the rest"
    assert not broker.is_stable()
    broker.advance(1_000)
    assert broker.is_stable()
    assert broker.produce(0, "next") == errors.NONE
    assert broker.end().response.error_code == errors.NONE
    (aborted,) = broker.cluster.topics["orders"].partitions[0].log.aborted(0, 100)
    assert (aborted.first_offset, aborted.last_offset) == (0, 1)


def test_a_client_cannot_go_on_with_a_transaction_whose_beginning_was_lost_with_the_power() -> None:
    broker = Scene({"fencepost.flush.on.commit": "true"})
    broker.produce(0)
    reply = broker.end().response
    broker.epoch = reply.producer_epoch
    broker.produce(0, "gone")
    broker.restart(after_power_loss(broker.storage))
    assert broker.produce(1) == errors.INVALID_PRODUCER_EPOCH
    assert broker.end().response.error_code == errors.PRODUCER_FENCED
    broker.producer_id, broker.epoch = broker.init()
    assert broker.produce(1) == errors.NONE
    assert broker.end().response.error_code == errors.NONE


def test_a_start_after_a_power_loss_that_was_cut_short_is_made_again_in_full() -> None:
    broker = Scene({"fencepost.flush.on.commit": "true"})
    broker.produce(0)
    broker.epoch = broker.end().response.producer_epoch
    broker.produce(0, "gone")
    broker.restart(after_kill(after_power_loss(broker.storage)))
    assert broker.produce(1) == errors.INVALID_PRODUCER_EPOCH
    # That one was not cut short, so the next kill is one like any other.
    broker.producer_id, broker.epoch = broker.init()
    broker.produce(0)
    broker.restart(after_kill(broker.storage))
    assert broker.end().response.error_code == errors.NONE


def test_no_client_goes_on_before_it_could_be_fenced_after_a_power_loss() -> None:
    """The disk is full, so its transactional id cannot get another producer id yet."""
    broker = Scene({"fencepost.flush.on.commit": "true"})
    commit = broker.commit_and_begin_again_with_tv1()
    lost = after_power_loss(broker.storage)
    with patch.object(lost, "save_metadata"):
        lost.full = True
        broker.restart(lost)
        lost.full = False
    assert broker.call(commit, 3).error_code == errors.CONCURRENT_TRANSACTIONS
    assert lost.may_have_lost_appends
    broker.advance(1000)
    assert broker.call(commit, 3).error_code == errors.PRODUCER_FENCED
    assert not lost.may_have_lost_appends


def lose_the_end_of_the_state_log(broker: Scene, kept: MemoryStorage) -> MemoryStorage:
    """A power loss took the records of `__transaction_state` that came after `kept`, and kept all data."""
    storage = after_power_loss(broker.storage)
    whole = after_kill(broker.storage)
    for where in whole._logs:
        storage._logs[where] = (kept if where[0] == "__transaction_state" else whole)._logs[where]
    return storage


@pytest.mark.parametrize("reply", ["complete", "prepare"])
def test_no_producer_id_and_epoch_is_given_out_twice_when_the_records_of_some_epochs_are_lost(reply: str) -> None:
    broker = Scene({"fencepost.endtxn.reply": reply})
    first = after_kill(broker.storage)
    given = {(broker.producer_id, broker.epoch)} | {broker.init() for _ in range(3)}
    broker.restart(lose_the_end_of_the_state_log(broker, first))
    after = {broker.init() for _ in range(4)}
    assert not given & after
    assert not {producer_id for producer_id, _ in given} & {producer_id for producer_id, _ in after}


def test_readers_learn_where_a_log_ended_at_a_power_loss() -> None:
    broker = Scene({"fencepost.flush.on.commit": "true"})
    broker.produce(0, "kept")
    broker.epoch = broker.end().response.producer_epoch
    broker.produce(0, "gone")
    broker.restart(after_kill(broker.storage))
    assert broker.end_of_epoch(0, current=0) == (errors.NONE, 0, 3)
    broker.restart(after_power_loss(broker.storage))
    broker.producer_id, broker.epoch = broker.init()
    broker.produce(0, "another")
    broker.produce(0, "and another", sequence=1)
    assert broker.end_of_epoch(0, current=0) == (errors.FENCED_LEADER_EPOCH, -1, -1)
    assert broker.end_of_epoch(0, current=1) == (errors.NONE, 0, 2)
    # It is known for good, whatever the snapshots say.
    broker.end()
    broker.cluster.stop()
    broker.restart(after_power_loss(broker.storage))
    assert broker.end_of_epoch(0, current=2) == (errors.NONE, 0, 2)
    assert broker.end_of_epoch(1, current=2) == (errors.NONE, 1, 6)  # The markers of "kept" were written again.


def test_a_loss_that_is_found_when_a_log_is_opened_counts_as_a_power_loss() -> None:
    broker = Scene()
    broker.produce(0, "open")
    storage = after_kill(broker.storage)
    open_log = storage.open_log

    def find_loss(topic: str, *args: Any) -> Any:
        storage.may_have_lost_appends |= topic == "__transaction_state"  # The last log that is opened.
        return open_log(topic, *args)

    with patch.object(storage, "open_log", find_loss):
        broker.restart(storage)
    assert broker.end_of_epoch(0, current=0) == (errors.FENCED_LEADER_EPOCH, -1, -1)
    assert broker.end_of_epoch(0, current=1) == (errors.NONE, 0, 1)
    assert broker.end().response.error_code == errors.PRODUCER_FENCED
    broker.restart(after_kill(broker.storage))
    assert broker.end_of_epoch(0, current=1) == (errors.NONE, 0, 1), "the epoch is in the document"


def test_an_outsiders_marker_with_a_high_coordinator_epoch_does_not_hold_the_lso_for_ever() -> None:
    broker = Scene()
    broker.produce(0)
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic("orders", [0])]
    marker = WriteTxnMarkersRequest.WritableTxnMarker(broker.producer_id, broker.epoch, False, topics, 9)
    broker.call(WriteTxnMarkersRequest([marker]), 1)
    assert broker.is_stable()
    assert broker.produce(0, sequence=1) == 0
    assert broker.end().response.error_code == 0
    assert broker.is_stable()


def test_a_marker_that_its_partition_refuses_moves_no_offsets() -> None:
    """An admin client's marker with a later epoch aborted the offsets in the group's partition, and that stands."""
    broker = Scene()
    broker.commit_offset(5)
    index = broker.cluster.groups.partition_of("g1", broker.now_ms)
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic("__consumer_offsets", [index])]
    marker = WriteTxnMarkersRequest.WritableTxnMarker(broker.producer_id, broker.epoch + 9, False, topics, 0)
    broker.call(WriteTxnMarkersRequest([marker]), 1)
    assert broker.end().response.error_code == 0
    assert broker.committed_offset() == (0, -1)
    broker.restart()
    assert broker.committed_offset() == (0, -1)


def test_a_zombies_offsets_are_not_committed_by_its_successors_marker() -> None:
    broker = Scene()
    broker.commit_offset(5)
    broker.producer_id, broker.epoch = broker.init()
    assert broker.committed_offset() == (0, -1)
    assert broker.commit_offset(6) == 0
    broker.end()
    assert broker.committed_offset() == (0, 6)


def test_a_timed_out_transaction_leaves_a_notice() -> None:
    broker = Scene()
    broker.produce(0)
    broker.advance(70_001)
    assert broker.state() is TxnState.COMPLETE_ABORT
    assert any("t1" in line and "its timeout is 60000 ms" in line for line in broker.notices)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)b"])
def test_a_pattern_cannot_keep_the_broker_busy(pattern: str) -> None:
    broker = PureBroker()
    broker.call(InitProducerIdRequest("a" * 500, 60_000), 5)
    assert broker.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2).transaction_states == []


@pytest.mark.parametrize("setting", ["log.cleaner.delete.retention.ms", "transactional.id.expiration.ms"])
def test_a_memory_shorter_than_a_transaction_is_warned_of(setting: str) -> None:
    """What fences a paused producer must outlive it; `tests/transcripts/expiry.txt` tells what refuses it if not."""
    assert parse({}).warnings() == []
    (warning,) = parse({setting: "1000"}).warnings()
    assert f"{setting}=1000" in warning
    assert "transaction.max.timeout.ms=900000" in warning


def test_with_flush_on_commit_no_power_cut_finds_the_later_without_the_earlier() -> None:
    """The data is on disk before the decision, the decision before the markers, the markers before Complete*."""
    syncs: list[Callable[[], None]] = []
    broker = Scene({"fencepost.flush.on.commit": "true"}, MemoryStorage(syncs.append), syncs=syncs)
    broker.produce(0)
    data = broker.cluster.topics["orders"].partitions[0]
    waiting = broker.end()
    # While the data is being synced, nothing is decided, and no other request may decide anything.
    assert broker.state() is TxnState.ONGOING
    assert broker.call(InitProducerIdRequest("t1", 60_000), 5).error_code == errors.CONCURRENT_TRANSACTIONS
    assert broker.end(False).response.error_code == errors.CONCURRENT_TRANSACTIONS
    assert broker.produce(1) == errors.CONCURRENT_TRANSACTIONS
    broker.advance(80_000)  # Past its timeout.
    assert broker.state() is TxnState.ONGOING
    syncs.pop(0)()
    assert (broker.state(), data.high_watermark) == (TxnState.PREPARE_COMMIT, 1)
    syncs.pop(0)()
    assert (broker.state(), data.high_watermark) == (TxnState.PREPARE_COMMIT, 2)
    syncs.pop(0)()
    assert broker.state() is TxnState.COMPLETE_COMMIT
    assert waiting.response.error_code == 0
    assert syncs == []


def test_a_transaction_of_version_1_is_over_when_its_end_is_on_disk() -> None:
    """The next one has the same epoch: recovery must not take it for this one, and end it."""
    syncs: list[Callable[[], None]] = []
    broker = Scene({"fencepost.flush.on.commit": "true"}, MemoryStorage(syncs.append), syncs=syncs)
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    add = AddPartitionsToTxnRequest((), "t1", broker.producer_id, broker.epoch, [kind("orders", [0])])
    assert broker.call(add, 3).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    waiting = broker.send(EndTxnRequest("t1", broker.producer_id, broker.epoch, True), 4)
    for _ in range(3):
        syncs.pop(0)()
    assert broker.state() is TxnState.COMPLETE_COMMIT
    assert not waiting.connection.is_answered
    result = broker.call(add, 3).results_by_topic_v3_and_below[0].results_by_partition[0]
    assert result.partition_error_code == errors.CONCURRENT_TRANSACTIONS
    syncs.pop(0)()
    assert waiting.response.error_code == 0
    result = broker.call(add, 3).results_by_topic_v3_and_below[0].results_by_partition[0]
    assert result.partition_error_code == 0
