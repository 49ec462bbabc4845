"""Valid requests that ask for too much: each has a limit, and none delays other requests for long."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from fencepost.broker import fetches, topics
from fencepost.broker.api import k00_produce
from fencepost.broker.node import MAX_NAMES_REQUEST_BYTES
from fencepost.machines.group.offsets import Offsets
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from fencepost.protocol.schema import MAX_REQUEST_ELEMENTS, Malformed
from tests.pure_broker import PureBroker

NewTopic = CreateTopicsRequest.CreatableTopic
MANY = 20_000


@pytest.fixture
def broker() -> PureBroker:
    broker = PureBroker()
    create(broker, NewTopic("orders", 3, 1))
    return broker


def create(broker: PureBroker, *topics: NewTopic) -> list[int]:
    pending = broker.send(CreateTopicsRequest(list(topics), 1000), 5)
    broker.advance(10)
    return [t.error_code for t in pending.response.topics]


def produce(broker: PureBroker, topic: str) -> None:
    batch = encode_batch([(None, b"value")], broker.now_ms)
    data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    reply = broker.call(ProduceRequest(None, -1, 1000, [data]), 9)
    assert reply.responses[0].partition_responses[0].error_code == errors.NONE


def fetch_of(partitions: list[int], max_wait_ms: int, session_epoch: int = -1) -> FetchRequest:
    wanted = [FetchRequest.FetchPartition(i, fetch_offset=0, partition_max_bytes=1000) for i in partitions]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=[FetchRequest.FetchTopic("orders", partitions=wanted)],
    )


# --- the size of a request --------------------------------------------------------------------------------


def test_a_request_has_so_many_elements_and_no_more(broker: PureBroker) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="x")] * MAX_REQUEST_ELEMENTS
    assert broker.call(MetadataRequest(topics, False), 8).topics
    with pytest.raises(Malformed, match="200001 elements"):
        broker.send(MetadataRequest([*topics, topics[0]], False), 8)


def test_only_requests_with_data_may_be_very_large(broker: PureBroker) -> None:
    names = ["x" * 30_000] * (MAX_NAMES_REQUEST_BYTES // 30_000 + 1)
    with pytest.raises(Malformed, match="API key 10 needs no more than 16777216 bytes"):
        broker.send(FindCoordinatorRequest(coordinator_keys=names), 4)


# --- the same thing, many times ---------------------------------------------------------------------------


def test_what_is_named_many_times_is_described_once(broker: PureBroker) -> None:
    broker.call(InitProducerIdRequest("txn", 60_000), 4)
    metadata = [MetadataRequest.MetadataRequestTopic(name="orders")] * MANY
    assert len(broker.call(MetadataRequest(metadata, False), 8).topics) == 1
    configs = [DescribeConfigsRequest.DescribeConfigsResource(2, "orders", None)] * MANY
    assert len(broker.call(DescribeConfigsRequest(configs), 4).results) == 1
    assert len(broker.call(DescribeGroupsRequest(["group"] * MANY), 5).groups) == 1
    assert len(broker.call(DescribeTransactionsRequest(["txn"] * MANY), 0).transaction_states) == 1
    producers = [DescribeProducersRequest.TopicRequest("orders", [0] * 100)] * 100
    described = broker.call(DescribeProducersRequest(producers), 0).topics
    assert [[p.partition_index for p in t.partitions] for t in described] == [[0]]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup("group", topics=None)] * MANY
    assert len(broker.call(OffsetFetchRequest(groups=groups), 8).groups) == 1


def test_a_partition_may_be_asked_for_a_time_once(broker: PureBroker) -> None:
    wanted = [ListOffsetsRequest.ListOffsetsPartition(0, timestamp=-1)] * 2
    reply = broker.call(ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic("orders", wanted)]), 5)
    assert [p.error_code for p in reply.topics[0].partitions] == [errors.INVALID_REQUEST]


def test_a_fetch_that_names_a_partition_many_times_is_woken_once(broker: PureBroker) -> None:
    waiting = broker.send(fetch_of([0] * MANY, max_wait_ms=1000), 11)
    assert waiting.response is None
    start = time.perf_counter()
    produce(broker, "orders")
    answered: Any = waiting.response
    assert len(answered.responses[0].partitions) == 1
    assert time.perf_counter() - start < 1


def test_ten_thousand_fetches_that_wait_for_one_partition_are_answered_quickly(broker: PureBroker) -> None:
    waiting = [broker.send(fetch_of([0], max_wait_ms=1000), 11) for _ in range(10_000)]
    start = time.perf_counter()
    produce(broker, "orders")
    assert all(w.connection.is_answered for w in waiting)
    assert time.perf_counter() - start < 3
    assert broker.cluster.fetches.is_empty()


class Read(bytes):
    """A frame that counts how often one of its bytes is read."""

    count = 0  # type: ignore[assignment]

    def __getitem__(self, where: Any) -> Any:
        self.count += 1
        return super().__getitem__(where)


def test_a_length_without_end_is_not_read_to_its_end(broker: PureBroker) -> None:
    head = b"\0\2t" + struct.pack(">hi", 1, 1000) + b"\2" + b"\7orders" + b"\2" + struct.pack(">i", 0)
    frame = Read(head + b"\xff" * MANY + b"\0\0\0\0")
    assert k00_produce.answer_from_bytes(broker.cluster, frame, 0, 9, broker.now_ms) is None
    assert frame.count < 30


def test_committed_offsets_are_looked_through_once_for_all_topics_that_are_deleted(
    broker: PureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{i}" for i in range(50)]
    create(broker, *(NewTopic(name, 1, 1) for name in names))
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 1)
    topics = [kind(name, partitions=[partition]) for name in ("orders", *names)]
    broker.call(OffsetCommitRequest("g", topics=topics), 8)
    looks: list[set[str]] = []
    look = Offsets.decide_topics_deleted

    def look_and_count(offsets: Offsets, gone: set[str]) -> Any:
        looks.append(gone)
        return look(offsets, gone)

    monkeypatch.setattr(Offsets, "decide_topics_deleted", look_and_count)
    broker.call(DeleteTopicsRequest(topic_names=names), 5)
    assert looks == [set(names)] * 5, "once in each shard"
    broker.restart()
    reply = broker.call(OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=None)]), 8)
    assert [topic.name for topic in reply.groups[0].topics] == ["orders"]


# --- what stays in memory ---------------------------------------------------------------------------------


def test_fetch_sessions_remember_so_many_partitions_together(
    broker: PureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "MAX_PARTITIONS", 5)
    replies = [broker.call(fetch_of([0, 1, 2], max_wait_ms=0, session_epoch=0), 11) for _ in range(3)]
    sessions = [reply.session_id for reply in replies]
    for session_id, error in zip(sessions, (71 - 1, 71 - 1, 0)):
        request = fetch_of([], max_wait_ms=0, session_epoch=1)
        request.session_id = session_id
        assert broker.call(request, 11).error_code == error


def test_nothing_is_left_of_clients_that_went_away(broker: PureBroker) -> None:
    for _ in range(5_000):
        broker.send(fetch_of([0, 1, 2], max_wait_ms=2**31 - 1), 11).connection.hang_up()
    assert broker.cluster.fetches.is_empty()
    assert len(broker.cluster.timers) < 3_000


def test_a_request_creates_ten_thousand_partitions_at_most(broker: PureBroker) -> None:
    assert create(broker, NewTopic("a", 6_000, 1), NewTopic("b", 6_000, 1)) == [errors.POLICY_VIOLATION] * 2
    assert create(broker, NewTopic("a", 6_000, 1)) == [errors.NONE]
    assert create(broker, NewTopic("b", 6_000, 1)) == [errors.NONE]


def test_a_broker_has_so_many_partitions_and_its_own_topics_still_fit(
    broker: PureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_PARTITIONS", 10)
    assert create(broker, NewTopic("a", 8, 1), NewTopic("b", 7, 1)) == [errors.POLICY_VIOLATION, errors.NONE]
    asked = [MetadataRequest.MetadataRequestTopic(name="new")]
    assert broker.call(MetadataRequest(asked, True), 8).topics[0].error_code == errors.POLICY_VIOLATION
    grown = [CreatePartitionsRequest.CreatePartitionsTopic("orders", 4, None)]
    assert broker.call(CreatePartitionsRequest(grown, 1000), 3).results[0].error_code == errors.POLICY_VIOLATION
    assert broker.call(InitProducerIdRequest("txn", 60_000), 4).error_code == errors.NONE
    assert broker.call(DeleteTopicsRequest(topic_names=["b"]), 5).responses[0].error_code == errors.NONE
    assert broker.cluster.draft().partition_count == 3 + 5


def test_many_topics_are_created_and_deleted_with_one_save_each(
    broker: PureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[bytes] = []
    monkeypatch.setattr(broker.storage, "save_metadata", saves.append)
    assert set(create(broker, *(NewTopic(f"t{i}", 1, 1) for i in range(400)))) == {errors.NONE}
    assert len(saves) == 1
    names = [f"t{i}" for i in range(400)]
    assert {r.error_code for r in broker.call(DeleteTopicsRequest(topic_names=names), 5).responses} == {errors.NONE}
    assert len(saves) == 2
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    assert {t.error_code for t in broker.call(MetadataRequest(asked, True), 8).topics} == {errors.NONE}
    assert len(saves) == 3
    broker.call(MetadataRequest(asked, True), 8)
    assert len(saves) == 3


def test_a_save_that_fails_leaves_everything_as_it_was(broker: PureBroker) -> None:
    create(broker, NewTopic("old", 2, 1))
    before = {name: (t.topic_id, len(t.partitions)) for name, t in broker.cluster.topics.items()}
    broker.storage.full = True
    assert create(broker, NewTopic("new", 1, 1), NewTopic("orders", 1, 1)) == [
        errors.KAFKA_STORAGE_ERROR,
        errors.TOPIC_ALREADY_EXISTS,
    ]
    deleted = broker.call(DeleteTopicsRequest(topic_names=["old", "none"]), 5).responses
    assert [r.error_code for r in deleted] == [errors.KAFKA_STORAGE_ERROR, errors.UNKNOWN_TOPIC_OR_PARTITION]
    grown = [CreatePartitionsRequest.CreatePartitionsTopic("old", 4, None)]
    assert broker.call(CreatePartitionsRequest(grown, 1000), 3).results[0].error_code == errors.KAFKA_STORAGE_ERROR
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("new", "old")]
    found = broker.call(MetadataRequest(asked, True), 8).topics
    assert [t.error_code for t in found] == [errors.LEADER_NOT_AVAILABLE, errors.NONE]
    assert {name: (t.topic_id, len(t.partitions)) for name, t in broker.cluster.topics.items()} == before
    assert broker.cluster.draft().partition_count == 5
    broker.storage.full = False
    broker.restart()
    assert {name: (t.topic_id, len(t.partitions)) for name, t in broker.cluster.topics.items()} == before


def test_a_coordinator_that_cannot_be_opened_is_not_available(broker: PureBroker) -> None:
    broker.storage.full = True
    assert broker.call(FindCoordinatorRequest("group"), 2).error_code == errors.COORDINATOR_NOT_AVAILABLE
    assert broker.call(InitProducerIdRequest("txn", 60_000), 4).error_code == errors.COORDINATOR_NOT_AVAILABLE
    broker.storage.full = False
    assert broker.call(FindCoordinatorRequest("group"), 2).error_code == errors.NONE
    assert broker.call(InitProducerIdRequest("txn", 60_000), 4).error_code == errors.NONE


# --- large values -----------------------------------------------------------------------------------------


def join(broker: PureBroker, metadata: bytes) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", metadata)
    pending = broker.send(JoinGroupRequest("group", 10_000, 10_000, "", None, "consumer", [protocol]), 3)
    broker.advance(3_000)
    return pending.response


def test_a_member_with_megabytes_of_metadata_is_refused(broker: PureBroker) -> None:
    refused = join(broker, bytes(2 << 20))
    assert refused.error_code == errors.UNKNOWN_SERVER_ERROR
    assert join(broker, bytes(500_000)).error_code == errors.NONE


def test_an_assignment_too_large_for_its_record_is_refused(broker: PureBroker) -> None:
    member_id = join(broker, b"meta").member_id
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id, bytes(2 << 20))
    refused = broker.call(SyncGroupRequest("group", 1, member_id, assignments=[assignment]), 3)
    assert refused.error_code == errors.UNKNOWN_SERVER_ERROR


def test_ids_as_long_as_a_string_can_be_are_served_and_recovered(broker: PureBroker) -> None:
    name = "x" * 32_767
    assert broker.call(FindCoordinatorRequest(name, 1), 2).error_code == errors.NONE
    first = broker.call(InitProducerIdRequest(name, 60_000), 4)
    assert first.error_code == errors.NONE
    broker.restart()
    again = broker.call(InitProducerIdRequest(name, 60_000), 4)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


def test_an_error_message_does_not_quote_all_of_a_long_name(broker: PureBroker) -> None:
    topic = NewTopic("x" * 32_767, 1, 1)
    config = CreateTopicsRequest.CreatableTopicConfig("y" * 32_767, "z" * 32_767)
    for version in (2, 7):
        refused = broker.call(CreateTopicsRequest([topic, NewTopic("t", 1, 1, [], [config])], 1000), version).topics
        assert [t.error_code for t in refused] == [errors.INVALID_TOPIC_EXCEPTION, errors.INVALID_CONFIG]


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*(.*)*b"])
def test_no_pattern_keeps_the_broker_busy(broker: PureBroker, pattern: str) -> None:
    for i in range(20):
        broker.call(InitProducerIdRequest(f"{i}-" + "a" * 1000, 60_000), 4)
    start = time.perf_counter()
    reply = broker.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert not reply.transaction_states
    assert time.perf_counter() - start < 3
    found = broker.call(ListTransactionsRequest(transactional_id_pattern="1?7-a+"), 2).transaction_states
    assert [t.transactional_id[:3] for t in found] == ["17-", "7-a"]
    bad = broker.call(ListTransactionsRequest(transactional_id_pattern="(?=a)"), 2)
    assert bad.error_code == errors.INVALID_REGULAR_EXPRESSION
