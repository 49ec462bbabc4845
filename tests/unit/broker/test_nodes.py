"""Several nodes over one storage: who answers what, and transactions over nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.api import APIS
from fencepost.broker.leaders import NO_LEADER, spread
from fencepost.broker.peers import Answered
from fencepost.broker.topics import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fencepost.protocol.schema import NO_UUID, Message
from tests.memory_storage import after_kill
from tests.pure_nodes import PureNodes
from tests.pure_producer import PureProducer, produce_error

PARTITIONS = range(6)
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
MarkerTopic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
MarkerPartition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


@pytest.fixture
def nodes() -> PureNodes:
    made = PureNodes(3)
    # Any node takes it: the controller carries it out.
    reply = made.call(2, CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 6, 1)], 1000), 5)
    assert reply.topics[0].error_code == errors.NONE
    return made


def elsewhere(nodes: PureNodes, topic: str, index: int) -> int:
    """A node that does not lead the partition."""
    return nodes.leader(topic, index) % 3 + 1


def id_with(nodes: PureNodes, is_wanted: Callable[[str], bool]) -> str:
    return next(f"t{n}" for n in range(1000) if is_wanted(f"t{n}"))


def remote_id(nodes: PureNodes) -> str:
    """A transactional id whose coordinator is not the leader of orders-0."""
    return id_with(nodes, lambda name: nodes.coordinator_of(name) != nodes.leader("orders", 0))


def committed(nodes: PureNodes, topic: str, index: int) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    partition = nodes.partition(topic, index)
    return partition.last_stable_offset, partition.high_watermark


# --- who leads --------------------------------------------------------------------------------------------------------


def test_partitions_take_turns_over_the_nodes_and_topics_begin_with_different_ones() -> None:
    assert [spread("orders", index, [3, 1, 2]) for index in range(4)] in ([1, 2, 3, 1], [2, 3, 1, 2], [3, 1, 2, 3])
    assert len({spread(f"topic-{n}", 0, [1, 2, 3]) for n in range(20)}) == 3
    assert spread("orders", 7, [4]) == 4


def test_every_node_tells_the_same_leaders(nodes: PureNodes) -> None:
    found = []
    for node_id in (1, 2, 3):
        reply = nodes.call(node_id, MetadataRequest([MetadataRequest.MetadataRequestTopic(name="orders")]), 12)
        described = nodes.call(node_id, DescribeTopicPartitionsRequest([]), 0)
        assert [b.node_id for b in reply.brokers] == [1, 2, 3]
        leaders = {p.partition_index: (p.leader_id, p.leader_epoch) for p in reply.topics[0].partitions}
        assert leaders == {p.partition_index: (p.leader_id, p.leader_epoch) for p in described.topics[0].partitions}
        found.append(leaders)
    assert found[0] == found[1] == found[2]
    assert {leader for leader, _ in found[0].values()} == {1, 2, 3}
    opened = {n: set(cluster.topics["orders"].partitions) for n, cluster in nodes.clusters.items()}
    assert opened == {n: {i for i, (leader, _) in found[0].items() if leader == n} for n in (1, 2, 3)}


def test_find_coordinator_names_the_leader_of_the_ids_partition_on_every_node(nodes: PureNodes) -> None:
    for key_type, where in ((1, nodes.coordinator_of), (0, nodes.coordinator_of_group)):
        names = [f"name-{n}" for n in range(10)]
        wanted = [where(name) for name in names]
        assert set(wanted) == {1, 2, 3}
        for node_id in (1, 2, 3):
            reply = nodes.call(node_id, FindCoordinatorRequest(key_type=key_type, coordinator_keys=names), 4)
            assert [c.node_id for c in reply.coordinators] == wanted


REQUESTS_FOR_A_LEADER: dict[str, tuple[Message, int, Callable[..., int]]] = {
    "Fetch": (
        FetchRequest(
            max_wait_ms=0, topics=[FetchRequest.FetchTopic("orders", partitions=[FetchRequest.FetchPartition(0)])]
        ),
        11,
        lambda r: r.responses[0].partitions[0].error_code,
    ),
    "ListOffsets": (
        ListOffsetsRequest(
            -1, 0, [ListOffsetsRequest.ListOffsetsTopic("orders", [ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)])]
        ),
        7,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(
            -1,
            [
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    "orders", [OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, -1, 0)]
                )
            ],
        ),
        4,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest(
            [DeleteRecordsRequest.DeleteRecordsTopic("orders", [DeleteRecordsRequest.DeleteRecordsPartition(0, 0)])], 0
        ),
        2,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "DescribeProducers": (
        DescribeProducersRequest([DescribeProducersRequest.TopicRequest("orders", [0])]),
        0,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "WriteTxnMarkers": (
        WriteTxnMarkersRequest(
            [
                WriteTxnMarkersRequest.WritableTxnMarker(
                    7, 0, True, [WriteTxnMarkersRequest.WritableTxnMarkerTopic("orders", [0])], 0, 0
                )
            ]
        ),
        1,
        lambda r: r.markers[0].topics[0].partitions[0].error_code,
    ),
}


@pytest.mark.parametrize("name", REQUESTS_FOR_A_LEADER)
def test_a_request_at_another_node_than_the_leader_is_refused(name: str, nodes: PureNodes) -> None:
    request, version, error_of = REQUESTS_FOR_A_LEADER[name]
    there = nodes.leader("orders", 0)
    for node_id in (1, 2, 3):
        error = error_of(nodes.call(node_id, request, version))
        assert errors.name_of(error) == ("NONE" if node_id == there else "NOT_LEADER_OR_FOLLOWER")


def test_a_batch_at_another_node_than_the_leader_is_refused(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert producer.produce("orders", 0, node_id=elsewhere(nodes, "orders", 0)) == "NOT_LEADER_OR_FOLLOWER"
    assert producer.produce("orders", 6, node_id=1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert producer.produce("orders", 0) == "NONE"


def orders_id(nodes: PureNodes) -> bytes:
    return nodes.clusters[1].topics["orders"].topic_id


def leader_in(reply: Any, found: Any) -> list[Any]:
    """The leader that the result of a partition names, and the addresses that the reply names."""
    leader = found.current_leader
    named = NO_LEADER if leader is None else (leader.leader_id, leader.leader_epoch)
    return [named, *((node.node_id, node.host, node.port) for node in reply.node_endpoints)]


@pytest.mark.parametrize("version", range(APIS[0].first, APIS[0].last + 1))
def test_a_batch_that_is_refused_elsewhere_learns_who_leads(version: int, nodes: PureNodes) -> None:
    data = [ProduceRequest.PartitionProduceData(index, encode_batch([(None, b"x")], 0)) for index in (0, 6)]
    topics = [ProduceRequest.TopicProduceData("orders", orders_id(nodes), data)]
    reply = nodes.call(elsewhere(nodes, "orders", 0), ProduceRequest(None, -1, 1000, topics), version)
    refused, unknown = reply.responses[0].partition_responses
    assert [errors.name_of(found.error_code) for found in (refused, unknown)] == [
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    leader = nodes.controller.leader_of("orders", 0)
    named = [leader, nodes.controller.address_of(leader.node_id)]
    assert leader_in(reply, refused) == (named if version >= 10 else [NO_LEADER])
    assert leader_in(reply, unknown)[0] == NO_LEADER


@pytest.mark.parametrize("version", range(APIS[1].first, APIS[1].last + 1))
def test_a_fetch_that_is_refused_learns_who_leads(version: int, nodes: PureNodes) -> None:
    nodes.controller.move_leader("orders", 0, elsewhere(nodes, "orders", 0), nodes.now_ms)
    leader = nodes.controller.leader_of("orders", 0)
    named = [leader, nodes.controller.address_of(leader.node_id)]
    for node_id, epoch, error in (
        (elsewhere(nodes, "orders", 0), -1, "NOT_LEADER_OR_FOLLOWER"),
        (leader.node_id, leader.epoch - 1, "FENCED_LEADER_EPOCH" if version >= 9 else "NONE"),
        (leader.node_id, leader.epoch + 1, "UNKNOWN_LEADER_EPOCH" if version >= 9 else "NONE"),
    ):
        partitions = [FetchRequest.FetchPartition(0, epoch, partition_max_bytes=100)]
        topic_id = orders_id(nodes) if version >= 13 else NO_UUID
        request = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic("orders", topic_id, partitions)])
        reply = nodes.call(node_id, request, version)
        [found] = reply.responses[0].partitions
        assert errors.name_of(found.error_code) == error
        is_named = version >= 16 and error != "UNKNOWN_LEADER_EPOCH"
        assert leader_in(reply, found) == (named if is_named else [NO_LEADER])


REQUESTS_FOR_A_COORDINATOR: dict[str, tuple[Message, int, Callable[..., int]]] = {
    "InitProducerId": (InitProducerIdRequest("x", 1000), 5, lambda r: r.error_code),
    "AddOffsetsToTxn": (AddOffsetsToTxnRequest("x", 1, 0, "g"), 4, lambda r: r.error_code),
    "EndTxn v0": (EndTxnRequest("x", 1, 0, True), 0, lambda r: r.error_code),
    "EndTxn": (EndTxnRequest("x", 1, 0, True), 5, lambda r: r.error_code),
    "DescribeTransactions": (DescribeTransactionsRequest(["x"]), 0, lambda r: r.transaction_states[0].error_code),
    "JoinGroup v0": (JoinGroupRequest("x", 10_000), 0, lambda r: r.error_code),
    "JoinGroup": (JoinGroupRequest("x", 10_000), 9, lambda r: r.error_code),
    "SyncGroup": (SyncGroupRequest("x", 1, "m"), 4, lambda r: r.error_code),
    "Heartbeat": (HeartbeatRequest("x", 1, "m"), 4, lambda r: r.error_code),
    "LeaveGroup": (LeaveGroupRequest("x"), 4, lambda r: r.error_code),
    "ConsumerGroupHeartbeat": (ConsumerGroupHeartbeatRequest("x", "m", 0), 1, lambda r: r.error_code),
    "ConsumerGroupDescribe": (ConsumerGroupDescribeRequest(["x"]), 1, lambda r: r.groups[0].error_code),
    "DescribeGroups": (DescribeGroupsRequest(["x"]), 6, lambda r: r.groups[0].error_code),
    "DeleteGroups": (DeleteGroupsRequest(["x"]), 2, lambda r: r.results[0].error_code),
    "OffsetDelete": (OffsetDeleteRequest("x"), 0, lambda r: r.error_code),
    "OffsetCommit": (
        OffsetCommitRequest(
            "x",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    "orders", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        8,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "OffsetFetch v1": (
        OffsetFetchRequest("x", [OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])]),
        1,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "OffsetFetch v7": (OffsetFetchRequest("x", None), 7, lambda r: r.error_code),
    "OffsetFetch": (
        OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup("x")]),
        9,
        lambda r: r.groups[0].error_code,
    ),
    "TxnOffsetCommit": (
        TxnOffsetCommitRequest(
            "t",
            "x",
            1,
            0,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    "orders", [TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        3,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
}
OF_TRANSACTIONS = {"InitProducerId", "AddOffsetsToTxn", "EndTxn v0", "EndTxn", "DescribeTransactions"}


@pytest.mark.parametrize("name", REQUESTS_FOR_A_COORDINATOR)
def test_a_request_at_another_node_than_the_coordinator_is_refused(name: str, nodes: PureNodes) -> None:
    request, version, error_of = REQUESTS_FOR_A_COORDINATOR[name]
    there = nodes.coordinator_of("x") if name in OF_TRANSACTIONS else nodes.coordinator_of_group("x")
    for node_id in {1, 2, 3} - {there}:
        assert errors.name_of(error_of(nodes.call(node_id, request, version))) == "NOT_COORDINATOR"
    assert errors.name_of(error_of(nodes.call(there, request, version))) != "NOT_COORDINATOR"


@pytest.mark.parametrize("version", range(APIS[11].first, APIS[11].last + 1))
def test_a_member_that_joins_elsewhere_is_given_no_protocol(version: int, nodes: PureNodes) -> None:
    there = nodes.coordinator_of_group("x")
    reply = nodes.call(there % 3 + 1, JoinGroupRequest("x", 10_000), version)
    assert errors.name_of(reply.error_code) == "NOT_COORDINATOR"
    assert reply.protocol_name == (None if version >= 7 else "")


def test_each_node_lists_the_transactions_and_groups_that_it_coordinates(nodes: PureNodes) -> None:
    ids = [f"t{n}" for n in range(9)]
    for name in ids:
        PureProducer(nodes, name)
        nodes.call(nodes.coordinator_of_group(name), HeartbeatRequest(name, 1, "m"), 4)
    listed = {n: nodes.call(n, ListTransactionsRequest(), 0).transaction_states for n in (1, 2, 3)}
    assert {n: {t.transactional_id for t in found} for n, found in listed.items()} == {
        n: {name for name in ids if nodes.coordinator_of(name) == n} for n in (1, 2, 3)
    }
    assert all(nodes.call(n, ListGroupsRequest(), 4).groups == [] for n in (1, 2, 3))


# --- transactions over nodes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_three_nodes_ends_on_all_of_them(version: int, commit: bool, nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1", version)
    for _ in range(2):
        if version == 1:
            assert producer.add("orders", *PARTITIONS) == "NONE"
        assert [producer.produce("orders", index) for index in PARTITIONS] == ["NONE"] * 6
        assert all(lso < end for lso, end in (committed(nodes, "orders", index) for index in PARTITIONS))
        assert producer.end(commit) == "NONE"
        assert all(lso == end for lso, end in (committed(nodes, "orders", index) for index in PARTITIONS))
    kinds = {type(request).__name__ for _, _, request in nodes.network.sent}
    assert kinds == {"WriteTxnMarkersRequest", "AddPartitionsToTxnRequest"}


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_of_a_transaction_count_on_the_groups_node_when_it_commits(version: int, nodes: PureNodes) -> None:
    group = id_with(nodes, lambda name: nodes.coordinator_of_group(name) != nodes.coordinator_of("t1"))
    producer = PureProducer(nodes, "t1", version)
    if version == 1:
        request = AddOffsetsToTxnRequest("t1", producer.producer_id, producer.epoch, group)
        assert nodes.call(producer.coordinator, request, 3).error_code == errors.NONE
    assert producer.commit_offset(group, "orders", 5) == "NONE"
    wanted = OffsetFetchRequest(group, [OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])])
    there = nodes.coordinator_of_group(group)
    assert nodes.call(there, wanted, 7).topics[0].partitions[0].committed_offset == -1
    assert producer.end() == "NONE"
    assert nodes.call(there, wanted, 7).topics[0].partitions[0].committed_offset == 5


def test_nothing_is_sent_between_nodes_if_one_node_leads_everything() -> None:
    nodes = PureNodes(1)
    nodes.call(1, CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 6, 1)], 1000), 5)
    producer = PureProducer(nodes, "t1")
    assert [producer.produce("orders", index) for index in PARTITIONS] == ["NONE"] * 6
    assert producer.end() == "NONE"
    assert nodes.network.sent == []


def test_a_batch_that_no_transaction_has_is_refused_by_the_coordinator_on_another_node(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, remote_id(nodes), version=1)
    assert producer.produce("orders", 0) == "TRANSACTION_ABORTABLE"
    assert committed(nodes, "orders", 0) == (0, 0)


def test_a_commit_waits_for_a_leader_that_cannot_be_reached(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert [producer.produce("orders", index) for index in PARTITIONS] == ["NONE"] * 6
    nodes.network.is_plugged = False
    ending = producer.send_end()
    nodes.advance(5000)
    assert ending.response is None
    ended = {index: lso == end for index in PARTITIONS for lso, end in [committed(nodes, "orders", index)]}
    assert ended == {index: nodes.leader("orders", index) == producer.coordinator for index in PARTITIONS}
    nodes.network.is_plugged = True
    nodes.advance(200)
    assert ending.response is not None
    assert ending.response.error_code == errors.NONE
    assert all(lso == end for lso, end in (committed(nodes, "orders", index) for index in PARTITIONS))


def test_a_marker_that_is_refused_with_an_unexpected_error_is_sent_again(nodes: PureNodes) -> None:
    """Only a later epoch of the producer means that the transaction has ended on a partition."""
    producer = PureProducer(nodes, "t1")
    assert [producer.produce("orders", index) for index in PARTITIONS] == ["NONE"] * 6
    refused: list[Message] = []
    deliver = nodes.network.send

    def refuse(source: int, target: int, request: Message, version: int, then: Answered) -> None:
        if not isinstance(request, WriteTxnMarkersRequest):
            deliver(source, target, request, version, then)
            return
        refused.append(request)
        results = [
            MarkerResult(
                marker.producer_id,
                [
                    MarkerTopic(
                        topic.name,
                        [MarkerPartition(i, errors.UNKNOWN_SERVER_ERROR) for i in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
        nodes.network.under_way.append(lambda: then(WriteTxnMarkersResponse(results), nodes.now_ms))

    nodes.network.send = refuse  # type: ignore[method-assign]
    ending = producer.send_end()
    nodes.advance(1000)
    assert len(refused) > 2
    assert ending.response is None
    nodes.network.send = deliver  # type: ignore[method-assign]
    nodes.advance(200)
    assert ending.response is not None
    assert ending.response.error_code == errors.NONE
    assert all(lso == end for lso, end in (committed(nodes, "orders", index) for index in PARTITIONS))


def test_a_batch_whose_coordinator_cannot_be_reached_may_be_sent_again(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, remote_id(nodes))
    nodes.network.is_plugged = False
    assert producer.produce("orders", 0) == "NOT_ENOUGH_REPLICAS"
    nodes.network.is_plugged = True
    assert producer.produce("orders", 0) == "NONE"


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_that_waited_for_its_coordinator_is_refused_if_its_transaction_ended_meanwhile(
    version: int, nodes: PureNodes
) -> None:
    """Otherwise it would hold back the last stable offset for ever (KIP-890)."""
    producer = PureProducer(nodes, remote_id(nodes), version)
    if version == 1:
        assert producer.add("orders", 0) == "NONE"
    waiting = producer.send("orders", 0)
    # The question reaches the coordinator; its answer is overtaken by the marker of an abort.
    nodes.network.under_way.popleft()()
    answer = nodes.network.under_way.popleft()
    ending = producer.send_end(commit=False)
    nodes.deliver()
    assert ending.response is not None
    assert ending.response.error_code == errors.NONE
    answer()
    assert produce_error(waiting) == "INVALID_TXN_STATE"
    assert nodes.partition("orders", 0).producers.open_txns == {}


def test_a_deleted_topic_needs_no_marker(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert [producer.produce("orders", index) for index in PARTITIONS] == ["NONE"] * 6
    nodes.network.is_plugged = False
    ending = producer.send_end()
    nodes.advance(1000)
    assert ending.response is None
    assert nodes.call(3, DeleteTopicsRequest(topic_names=["orders"]), 5).responses[0].error_code == errors.NONE
    nodes.advance(200)
    assert ending.response is not None
    assert ending.response.error_code == errors.NONE


def test_the_internal_topics_are_led_by_all_nodes(nodes: PureNodes) -> None:
    PureProducer(nodes, "t1")
    nodes.coordinator_of_group("g")
    for topic in (TXN_TOPIC, OFFSETS_TOPIC):
        assert {nodes.leader(topic, index) for index in range(5)} == {1, 2, 3}


# --- replicas ---------------------------------------------------------------------------------------------------------


def create(nodes: PureNodes, node_id: int, name: str, factor: int, *replicas: list[int]) -> tuple[str, int]:
    """The error and the replication factor that CreateTopics answers; with `replicas`, those of each partition."""
    kind = CreateTopicsRequest.CreatableReplicaAssignment
    assigned = [kind(index, ids) for index, ids in enumerate(replicas)]
    topic = CreateTopicsRequest.CreatableTopic(name, -1 if assigned else 6, factor, assigned)
    [result] = nodes.call(node_id, CreateTopicsRequest([topic], 1000), 5).topics
    return errors.name_of(result.error_code), result.replication_factor


def replicas_of(nodes: PureNodes, name: str) -> list[tuple[list[int], list[int], list[int]]]:
    request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)])
    partitions = nodes.call(min(nodes.nodes), request, 12).topics[0].partitions
    assert [p.replica_nodes[0] for p in partitions] == [p.leader_id for p in partitions]
    return [(p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in partitions]


def test_a_topic_has_as_many_replicas_as_was_asked_for_up_to_the_number_of_nodes(nodes: PureNodes) -> None:
    assert create(nodes, 1, "three", 3) == ("NONE", 3)
    assert all(sorted(ids) == sorted(isr) == [1, 2, 3] and not off for ids, isr, off in replicas_of(nodes, "three"))
    assert create(nodes, 2, "two", 2) == ("NONE", 2)
    assert all(len(ids) == 2 and ids == isr for ids, isr, _ in replicas_of(nodes, "two"))
    assert create(nodes, 3, "default", -1) == ("NONE", 1)
    for factor in (4, 0, -2):
        assert create(nodes, 1, "refused", factor) == ("INVALID_REPLICATION_FACTOR", -1)


def test_a_node_that_is_down_is_no_replica_in_sync(nodes: PureNodes) -> None:
    assert create(nodes, 1, "three", 3) == ("NONE", 3)
    nodes.stop(2)
    for ids, isr, offline in replicas_of(nodes, "three"):
        assert (sorted(ids), sorted(isr), offline) == ([1, 2, 3], [1, 3], [2])
    # Kafka: counts the brokers that are up.
    assert create(nodes, 1, "refused", 3) == ("INVALID_REPLICATION_FACTOR", -1)


def test_a_request_may_choose_the_leaders_and_the_replicas(nodes: PureNodes) -> None:
    assert create(nodes, 1, "chosen", -1, [3, 1], [2, 1], [1, 2]) == ("NONE", 2)
    assert [ids[0] for ids, _, _ in replicas_of(nodes, "chosen")] == [3, 2, 1]
    for wrong in ([4], [1, 1], []):
        assert create(nodes, 1, "refused", -1, wrong) == ("INVALID_REPLICA_ASSIGNMENT", -1)


@pytest.mark.parametrize("setting", ["check", "ignore"])
def test_one_broker_refuses_replicas_as_kafka_does_unless_they_are_ignored(setting: str) -> None:
    alone = PureNodes(1, {"fencepost.replication.factor": setting, "default.replication.factor": "3"})
    expected = ("NONE", 1) if setting == "ignore" else ("INVALID_REPLICATION_FACTOR", -1)
    assert create(alone, 1, "three", 3) == expected
    assert create(alone, 1, "default", -1) == ("NONE", 1)


def test_replicas_are_kept_over_a_restart(nodes: PureNodes) -> None:
    assert create(nodes, 1, "three", 3) == ("NONE", 3)
    again = PureNodes(3, storage=after_kill(nodes.storage))
    assert all(sorted(ids) == [1, 2, 3] for ids, _, _ in replicas_of(again, "three"))
    alone = PureNodes(1, storage=after_kill(nodes.storage))
    assert replicas_of(alone, "three") == [([1], [1], [])] * 6
