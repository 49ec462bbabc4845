"""The events of transactions, as `broker --log txn` prints them."""

from __future__ import annotations

from fencepost.broker.coordinator.txn_trace import TxnEvent
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    WriteTxnMarkersRequest,
)
from fencepost.server.operator_log import describe
from tests.pure_broker import PureBroker


class Told:
    """A broker with one topic of two partitions, and the events since the last look."""

    def __init__(self, **settings: str) -> None:
        self.events: list[TxnEvent] = []
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = PureBroker(given, trace=self.events.append)
        self.broker.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 2, 1)], 1000), 5)

    def init(self, transactional_id: str = "t1", timeout_ms: int = 60_000) -> tuple[int, int]:
        reply = self.broker.call(InitProducerIdRequest(transactional_id, timeout_ms), 5)
        return reply.producer_id, reply.producer_epoch

    def produce(self, who: tuple[int, int], index: int = 0, sequence: int = 0) -> int:
        batch = encode_batch([(b"k", b"v")], self.broker.now_ms, *who, sequence, transactional=True)
        partition = ProduceRequest.PartitionProduceData(index, batch)
        topic = ProduceRequest.TopicProduceData("orders", partition_data=[partition])
        reply = self.broker.call(ProduceRequest("t1", -1, 1000, [topic]), 12)
        code: int = reply.responses[0].partition_responses[0].error_code
        return code

    def end(self, who: tuple[int, int], commit: bool) -> int:
        code: int = self.broker.call(EndTxnRequest("t1", *who, commit), 5).error_code
        return code

    def lines(self) -> list[str]:
        found = [describe(event) for event in self.events]
        self.events.clear()
        return found


def test_a_commit_is_told_from_begin_to_complete() -> None:
    told = Told()
    me = told.init()
    assert told.lines() == ["init     t1 (producer 0, epoch 0): timeout 60000 ms"]
    told.produce(me)
    told.broker.advance(7)
    told.produce(me, index=1)
    told.broker.call(AddOffsetsToTxnRequest("t1", *me, "billing"), 4)
    begun = told.lines()
    assert begun[:3] == [
        "begin    t1 (producer 0, epoch 0)",
        "add      t1 (producer 0, epoch 0): orders-0",
        "add      t1 (producer 0, epoch 0): orders-1",
    ]
    assert begun[3].startswith("add      t1 (producer 0, epoch 0): __consumer_offsets-")
    assert told.end(me, commit=True) == errors.NONE
    decided, *markers, completed = told.lines()
    assert decided == "decide   t1 (producer 0, epoch 1): COMMIT, 3 partitions (PrepareCommit)"
    assert sorted(markers)[1:] == [
        "marker   t1 (producer 0, epoch 1): COMMIT on orders-0 at offset 1",
        "marker   t1 (producer 0, epoch 1): COMMIT on orders-1 at offset 1",
    ]
    assert completed == "complete t1 (producer 0, epoch 1): CompleteCommit, 7 ms after the begin"


def test_a_zombie_is_told_when_it_is_fenced_and_when_it_is_refused() -> None:
    told = Told()
    zombie = told.init()
    told.produce(zombie)
    told.lines()
    told.init()
    assert told.lines() == [
        "fence    t1 (producer 0, epoch 0): another producer took the id: the open transaction is aborted",
        "decide   t1 (producer 0, epoch 1): ABORT, 1 partition (PrepareAbort)",
        "marker   t1 (producer 0, epoch 1): ABORT on orders-0 at offset 1",
        "complete t1 (producer 0, epoch 1): CompleteAbort, 0 ms after the begin",
        "init     t1 (producer 0, epoch 2): timeout 60000 ms",
        "fence    t1 (producer 0, epoch 1): epoch 2 of producer 0 takes over: this one is fenced",
    ]
    assert told.end(zombie, commit=True) == errors.PRODUCER_FENCED
    (line,) = told.lines()
    assert line.startswith("fence    t1 (producer 0, epoch 0): a request was refused with PRODUCER_FENCED, ")
    assert line.endswith("the id has producer 0 and epoch 2")


def test_a_timeout_comes_before_its_abort() -> None:
    told = Told(transaction_abort_timed_out_transaction_cleanup_interval_ms="1000")
    told.produce(told.init(timeout_ms=5000))
    told.lines()
    told.broker.advance(6500)
    first, *rest = told.lines()
    assert first == "timeout  t1 (producer 0, epoch 0): open for 6000 ms, the timeout is 5000 ms: aborted"
    assert [line.split()[0] for line in rest] == ["decide", "marker", "complete"]


def test_the_marker_of_a_tool_is_told_without_an_id() -> None:
    told = Told()
    producer_id, epoch = told.init()
    told.produce((producer_id, epoch))
    told.lines()
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic("orders", [0])
    marker = WriteTxnMarkersRequest.WritableTxnMarker(producer_id, epoch, False, [topic], 0)
    told.broker.call(WriteTxnMarkersRequest([marker]), 1)
    assert told.lines() == ["marker   (unknown id) (producer 0, epoch 0): ABORT on orders-0 at offset 1"]


def test_an_expired_id_is_told() -> None:
    told = Told(transactional_id_expiration_ms="900000")
    told.init()
    told.lines()
    told.broker.advance(2 * 3_600_000)
    assert told.lines() == ["expire   t1 (producer 0, epoch 0): the id was idle for too long and is forgotten"]
