"""Long requests take several turns, and other clients are served in between."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker import slices
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import Message
from tests.pure_broker import Pending, PureBroker

NewTopic = CreateTopicsRequest.CreatableTopic
Growth = CreatePartitionsRequest.CreatePartitionsTopic
Resource = DescribeConfigsRequest.DescribeConfigsResource
# Smaller than in a broker.
PARTITIONS_A_SAVE, WORK_A_SLICE = 50, 200
MANY = 4 * PARTITIONS_A_SAVE
NAMES = [f"t{i}" for i in range(MANY)]
IDS = [f"id-{i}" for i in range(4 * WORK_A_SLICE)]


def metadata(names: list[str], creates: bool = True) -> MetadataRequest:
    return MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in names], creates)


def served_in_between(broker: PureBroker, pending: Pending) -> int:
    """How many requests of another client are answered before the one that is `pending`."""
    answered = 0
    while not pending.connection.is_answered:
        assert pending.connection.closed is None
        assert broker.call(ApiVersionsRequest(), 0).api_keys
        answered += 1
        broker.advance(1)
    return answered


def finished(broker: PureBroker, request: Message, version: int) -> Any:
    pending = broker.send(request, version)
    served_in_between(broker, pending)
    return pending.response


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "PARTITIONS_A_SAVE", PARTITIONS_A_SAVE)
    monkeypatch.setattr(slices, "WORK_A_SLICE", WORK_A_SLICE)


@pytest.fixture
def broker() -> PureBroker:
    """It has the topics `t0` to `t199`."""
    broker = PureBroker()
    finished(broker, CreateTopicsRequest([NewTopic(name, 1, 1) for name in NAMES], 1000), 5)
    assert set(NAMES) <= broker.cluster.topics.keys()
    return broker


CHANGES: dict[str, tuple[Message, int]] = {
    "topics created by Metadata": (metadata([f"new-{name}" for name in NAMES]), 8),
    "CreateTopics": (CreateTopicsRequest([NewTopic(f"new-{name}", 1, 1) for name in NAMES], 1000), 5),
    "CreatePartitions": (CreatePartitionsRequest([Growth(name, 2, None) for name in NAMES], 1000), 3),
    "DeleteTopics": (DeleteTopicsRequest(topic_names=NAMES), 5),
    "AlterConfigs": (
        AlterConfigsRequest(
            [
                AlterConfigsRequest.AlterConfigsResource(
                    2, name, [AlterConfigsRequest.AlterableConfig("retention.ms", "1")]
                )
                for name in NAMES
            ],
            False,
        ),
        1,
    ),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            [
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    2, name, [IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "1")]
                )
                for name in NAMES
            ],
            False,
        ),
        1,
    ),
}
QUESTIONS: dict[str, tuple[Message, int]] = {
    "Metadata of unknown topics": (metadata(IDS, creates=False), 8),
    "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=IDS), 4),
    "DescribeGroups": (DescribeGroupsRequest(IDS), 5),
    "DeleteGroups": (DeleteGroupsRequest(IDS), 2),
    "DescribeTransactions": (DescribeTransactionsRequest(IDS), 0),
    "DescribeConfigs": (DescribeConfigsRequest([Resource(2, name, None) for name in NAMES]), 4),
    "DeleteRecords": (
        DeleteRecordsRequest(
            [
                DeleteRecordsRequest.DeleteRecordsTopic(name, [DeleteRecordsRequest.DeleteRecordsPartition(0, -1)])
                for name in NAMES
            ],
            1000,
        ),
        2,
    ),
    "ListOffsets by time": (
        ListOffsetsRequest(
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name, [ListOffsetsRequest.ListOffsetsPartition(0, timestamp=1)])
                for name in NAMES
            ]
        ),
        5,
    ),
}


@pytest.mark.parametrize(("request_", "version"), (CHANGES | QUESTIONS).values(), ids=(CHANGES | QUESTIONS).keys())
def test_others_are_served_between_the_slices_of_a_request_with_many_names(
    request_: Message, version: int, broker: PureBroker
) -> None:
    assert served_in_between(broker, broker.send(request_, version)) >= 3


@pytest.mark.parametrize("name", CHANGES)
def test_a_long_change_is_saved_in_parts_of_which_each_is_whole(
    name: str, broker: PureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = []
    save = broker.storage.save_metadata

    def save_and_count(document: bytes) -> None:
        saves.append(document)
        if len(saves) == 2:
            raise StorageFailed("the disk is full")
        save(document)

    monkeypatch.setattr(broker.storage, "save_metadata", save_and_count)
    request, version = CHANGES[name]
    reply = finished(broker, request, version)
    assert len(saves) >= 3 or name == "topics created by Metadata"
    items = next(getattr(reply, field) for field in ("topics", "results", "responses") if hasattr(reply, field))
    failed = [item for item in items if item.error_code]
    assert len(items) == MANY
    if name == "topics created by Metadata":  # It gives up: the client asks again.
        assert len(failed) == MANY - PARTITIONS_A_SAVE
    else:
        assert len(failed) == PARTITIONS_A_SAVE
    before = {topic.name: (topic.topic_id, topic.partition_count) for topic in broker.cluster.topics.values()}
    broker.restart()
    assert {topic.name: (topic.topic_id, topic.partition_count) for topic in broker.cluster.topics.values()} == before


def test_what_others_change_between_two_slices_stays(broker: PureBroker) -> None:
    pending = broker.send(*CHANGES["DeleteTopics"])
    assert not pending.connection.is_answered
    broker.call(CreateTopicsRequest([NewTopic("of-another", 3, 1)], 1000), 5)
    broker.call(DeleteTopicsRequest(topic_names=[NAMES[-1]]), 5)
    served_in_between(broker, pending)
    codes = [result.error_code for result in pending.response.responses]
    assert codes == [errors.NONE] * (MANY - 1) + [errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.cluster.topics.keys() == {"of-another"}


def test_many_long_requests_take_turns(broker: PureBroker) -> None:
    pending = [broker.send(DescribeGroupsRequest(IDS), 5) for _ in range(10)]
    assert served_in_between(broker, pending[0]) >= 3 * 10
    assert sum(one.connection.is_answered for one in pending) == 1
    assert served_in_between(broker, pending[-1]) == 9


def test_a_long_request_ends_when_its_client_leaves(broker: PureBroker) -> None:
    pending = broker.send(*CHANGES["DeleteTopics"])
    pending.connection.hang_up()
    broker.advance(1000)
    assert not pending.connection.is_answered
    assert len(broker.cluster.topics) == MANY - PARTITIONS_A_SAVE


def test_a_metadata_request_for_more_than_ten_thousand_new_topics_creates_none() -> None:
    broker = PureBroker()
    names = [f"t{i}" for i in range(10_001)]
    found = finished(broker, metadata(names), 8).topics
    assert {topic.error_code for topic in found} == {errors.UNKNOWN_TOPIC_OR_PARTITION}
    assert not broker.cluster.topics


def test_others_are_served_between_the_markers_of_a_transaction_with_many_partitions() -> None:
    broker = PureBroker()
    broker.call(CreateTopicsRequest([NewTopic("wide", 1000, 1)], 1000), 5)
    producer = broker.call(InitProducerIdRequest("txn", 60_000), 1)
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("wide", list(range(1000)))]
    who = (producer.producer_id, producer.producer_epoch)
    broker.call(AddPartitionsToTxnRequest([], "txn", *who, topics), 0)
    pending = broker.send(EndTxnRequest("txn", *who, True), 1)
    assert served_in_between(broker, pending) >= 3
    assert pending.response.error_code == errors.NONE
    assert {partition.log.end_offset for partition in broker.cluster.topics["wide"].partitions.values()} == {1}


@pytest.mark.parametrize("is_transactional", [False, True])
def test_more_offsets_than_fit_into_one_batch_are_refused(is_transactional: bool) -> None:
    broker = PureBroker()
    broker.call(CreateTopicsRequest([NewTopic("t", 1, 1)], 1000), 5)
    producer = broker.call(InitProducerIdRequest("txn", 60_000), 1)
    producer_of = ("txn", "g", producer.producer_id, producer.producer_epoch)

    def codes(count: int) -> set[int]:
        if is_transactional:
            kind = TxnOffsetCommitRequest
            partitions: list[Any] = [kind.TxnOffsetCommitRequestPartition(0, 1, -1, "")] * count
            topic = kind.TxnOffsetCommitRequestTopic("t", partitions)
            reply = broker.call(kind(*producer_of, topics=[topic]), 5)
        else:
            of = OffsetCommitRequest
            partitions = [of.OffsetCommitRequestPartition(0, 1, -1, "")] * count
            reply = broker.call(of("g", topics=[of.OffsetCommitRequestTopic("t", partitions=partitions)]), 8)
        return {partition.error_code for partition in reply.topics[0].partitions}

    assert codes(10_000) == {errors.NONE}
    # Apache Kafka 4.3.1 takes 15,000 offsets of a group and a topic with such names, and refuses 20,000.
    assert codes(25_000) == {errors.INVALID_COMMIT_OFFSET_SIZE}
