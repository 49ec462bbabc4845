"""Fetches: a reader's failure does not reach writers, and a session keeps reading the topic that it began with."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.machines.log.interface import LogConfig, LogTailUnknown, StorageFailed
from fencepost.machines.log.memory import MemoryLog
from fencepost.machines.txn.states import TxnState
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.schema import NO_UUID
from tests.pure_broker import PureBroker

READ_COMMITTED = 1


def create(broker: PureBroker, name: str) -> bytes:
    reply = broker.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, 1, 1)], 1000), 7)
    topic_id: bytes = reply.topics[0].topic_id
    return topic_id


def delete(broker: PureBroker, name: str) -> None:
    assert broker.call(DeleteTopicsRequest(topic_names=[name]), 5).responses[0].error_code == errors.NONE


def produce(broker: PureBroker, topic: str, batch: bytes, transactional_id: str | None = None) -> int:
    data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    reply = broker.call(ProduceRequest(transactional_id, -1, 1000, [data]), 12)
    error: int = reply.responses[0].partition_responses[0].error_code
    return error


def fetch(topic: str = "", topic_id: bytes = NO_UUID, offset: int = 0, **fields: Any) -> FetchRequest:
    partition = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    wanted = FetchRequest.FetchTopic(topic, topic_id=topic_id, partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def go_on(session_id: int, epoch: int = 1, **fields: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, **fields
    )


def codes(reply: Any) -> list[int]:
    return [p.error_code for topic in reply.responses for p in topic.partitions]


# --- readers that cannot be served ------------------------------------------------------------------------


class Unreadable(MemoryLog):
    """A log that accepts appends but cannot be read once it has an `error`."""

    error: Exception | None = None

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
        if self.error is not None:
            raise self.error
        return super().read(offset, max_bytes, end_address)

    def address_of(self, offset: int) -> int:
        if self.error is not None:
            raise self.error
        return super().address_of(offset)


class Transaction:
    """A transaction with data in two topics, and a waiting read_committed reader of each."""

    def __init__(self, min_bytes: int, error: Exception) -> None:
        self.broker = PureBroker()
        init = self.broker.call(InitProducerIdRequest("t", 60_000), 5)
        self.identity = init.producer_id, init.producer_epoch
        for topic in ("first", "second"):
            create(self.broker, topic)
            self.broker.cluster.topics[topic].partitions[0].log = Unreadable(self.broker.storage, LogConfig())
            batch = encode_batch([(b"k", b"v")], self.broker.now_ms, *self.identity, 0, transactional=True)
            assert produce(self.broker, topic, batch, "t") == errors.NONE
        wish: dict[str, Any] = {"max_wait_ms": 30_000, "min_bytes": min_bytes, "isolation_level": READ_COMMITTED}
        self.readers = [self.broker.send(fetch(topic, **wish), 11) for topic in ("first", "second")]
        log = self.broker.cluster.topics["first"].partitions[0].log
        assert isinstance(log, Unreadable)
        log.error = error

    def commit(self) -> int:
        error: int = self.broker.call(EndTxnRequest("t", *self.identity, True), 5).error_code
        return error


@pytest.mark.parametrize("min_bytes", [1, 100])
@pytest.mark.parametrize("error", [StorageFailed("input/output error"), OSError("too many open files")])
def test_a_reader_that_cannot_be_served_does_not_disturb_the_commit_that_woke_it(
    error: Exception, min_bytes: int
) -> None:
    story = Transaction(min_bytes, error)
    assert story.commit() == errors.NONE
    found = story.broker.cluster.txns.find("t")
    assert found is not None
    assert found.state is TxnState.COMPLETE_COMMIT
    for topic in ("first", "second"):
        partition = story.broker.cluster.topics[topic].partitions[0]
        assert partition.last_stable_offset == partition.high_watermark == 2
    unserved, served = story.readers
    assert codes(served.response) == [errors.NONE]
    if isinstance(error, StorageFailed):
        assert codes(unserved.response) == [errors.KAFKA_STORAGE_ERROR]
    else:
        assert unserved.connection.closed == "the request could not be served: OSError: too many open files"
    assert story.broker.cluster.fetches.is_empty()


def test_a_reader_of_the_coordinators_topic_that_cannot_be_served_costs_no_record() -> None:
    broker = PureBroker({"transaction.state.log.num.partitions": "1"})
    partition = broker.cluster.txns.shard_of("t", broker.now_ms).log.partition
    log = partition.log = Unreadable(broker.storage, LogConfig())
    reader = broker.send(fetch("__transaction_state", max_wait_ms=30_000, min_bytes=100), 11)
    log.error = StorageFailed("input/output error")
    assert broker.call(InitProducerIdRequest("t", 60_000), 5).error_code == errors.NONE
    assert broker.cluster.txns.find("t") is not None
    assert codes(reader.response) == [errors.KAFKA_STORAGE_ERROR]


def test_a_log_with_an_unknown_tail_found_by_a_held_fetch_stops_the_process() -> None:
    story = Transaction(1, LogTailUnknown("the last write"))
    with pytest.raises(LogTailUnknown):
        story.commit()


# --- sessions and topic ids -------------------------------------------------------------------------------


def test_a_session_does_not_read_another_topic_of_the_same_name() -> None:
    broker = PureBroker()
    old = create(broker, "orders")
    session_id = broker.call(fetch(topic_id=old, session_epoch=0), 13).session_id
    delete(broker, "orders")
    new = create(broker, "orders")
    assert produce(broker, "orders", encode_batch([(b"k", b"v")], broker.now_ms)) == errors.NONE
    reply = broker.call(go_on(session_id), 13)
    assert [(t.topic_id, p.error_code, p.records) for t in reply.responses for p in t.partitions] == [
        (old, errors.UNKNOWN_TOPIC_ID, b"")
    ]
    # A client then replaces the old topic with the new one in its session.
    request = fetch(topic_id=new, session_id=session_id, session_epoch=2)
    request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic_id=old, partitions=[0])]
    reply = broker.call(request, 13)
    assert [topic.topic_id for topic in reply.responses] == [new]
    assert reply.responses[0].partitions[0].high_watermark == 1


def test_a_session_that_names_topics_reads_whatever_has_the_name() -> None:
    broker = PureBroker()
    create(broker, "orders")
    session_id = broker.call(fetch("orders", session_epoch=0), 12).session_id
    delete(broker, "orders")
    assert codes(broker.call(go_on(session_id), 12)) == [errors.UNKNOWN_TOPIC_OR_PARTITION]
    create(broker, "orders")
    assert codes(broker.call(go_on(session_id, 2), 12)) == [errors.NONE]


def test_a_session_forgets_a_deleted_topic() -> None:
    broker = PureBroker()
    topic_id = create(broker, "orders")
    session_id = broker.call(fetch(topic_id=topic_id, session_epoch=0), 13).session_id
    delete(broker, "orders")
    gone = [FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[0])]
    assert broker.call(go_on(session_id, forgotten_topics_data=gone), 13).responses == []


def test_a_session_remembers_topics_that_are_not_there_apart() -> None:
    broker = PureBroker()
    request = fetch(topic_id=b"\1" * 16, session_epoch=0)
    other = FetchRequest.FetchTopic(topic_id=b"\2" * 16, partitions=request.topics[0].partitions)
    request.topics = [*request.topics, other]
    session_id = broker.call(request, 13).session_id
    assert codes(broker.call(go_on(session_id), 13)) == [errors.UNKNOWN_TOPIC_ID] * 2


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_a_session_cannot_change_between_names_and_ids(first: int, then: int) -> None:
    broker = PureBroker()
    topic_id = create(broker, "orders")
    wish = fetch("orders", session_epoch=0) if first < 13 else fetch(topic_id=topic_id, session_epoch=0)
    session_id = broker.call(wish, first).session_id
    assert broker.call(go_on(session_id), then).error_code == errors.FETCH_SESSION_TOPIC_ID_ERROR
