"""Nodes that stop, pause and come back: leaders and coordinators move, and what was acknowledged stays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.controller import NodeOrderRefused
from fencepost.broker.topics import TXN_TOPIC
from fencepost.machines.log.interface import LogConfig, LogFenced, StorageFailed
from fencepost.machines.log.memory import MemoryStorage
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from tests.memory_storage import after_kill
from tests.pure_nodes import PureNodes
from tests.pure_producer import PureProducer

PARTITIONS = range(6)
ALL = [("orders", index) for index in PARTITIONS]


def create(nodes: PureNodes, topic: str, partitions: int = 6) -> None:
    node_id = min(nodes.nodes.keys() - nodes.paused)
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(topic, partitions, 1)], 1000)
    assert nodes.call(node_id, request, 5).topics[0].error_code == errors.NONE


@pytest.fixture
def nodes() -> PureNodes:
    made = PureNodes(3)
    create(made, "orders")
    return made


def epochs(nodes: PureNodes) -> dict[tuple[str, int], int]:
    return {where: nodes.controller.leader_of(*where).epoch for where in ALL}


def leaders(nodes: PureNodes) -> set[int]:
    return {nodes.leader(*where) for where in ALL}


def read_committed(nodes: PureNodes, index: int) -> tuple[int, int, int]:
    """The last stable offset and the high watermark that the leader tells, and the bytes that it gives."""
    partition = FetchRequest.FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, isolation_level=1, topics=[FetchRequest.FetchTopic("orders", partitions=[partition])]
    )
    found = nodes.call(nodes.leader("orders", index), request, 11).responses[0].partitions[0]
    assert found.error_code == errors.NONE
    return found.last_stable_offset, found.high_watermark, len(found.records or b"")


def is_stable(nodes: PureNodes) -> bool:
    return all(lso == end for lso, end, _ in (read_committed(nodes, index) for index in PARTITIONS))


def state_of(nodes: PureNodes, transactional_id: str) -> str:
    txn = nodes.clusters[nodes.coordinator_of(transactional_id)].txns.find(transactional_id)
    assert txn is not None
    return txn.state.kafka_name


# --- leaders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_other_nodes_lead_the_partitions_of_a_node_that_goes(how: str, nodes: PureNodes) -> None:
    before = epochs(nodes)
    moved = [where for where in ALL if nodes.leader(*where) == 2]
    getattr(nodes, how)(2)
    assert leaders(nodes) == {1, 3}
    after = epochs(nodes)
    assert {where for where in ALL if after[where] > before[where]} == set(moved)
    for node_id in (1, 3):
        reply = nodes.call(node_id, MetadataRequest([]), 12)
        assert [broker.node_id for broker in reply.brokers] == [1, 3]


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_a_transaction_goes_on_after_its_leaders_and_its_coordinator_have_moved(how: str, nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert [producer.produce(*where) for where in ALL] == ["NONE"] * 6
    getattr(nodes, how)(producer.coordinator)
    # The new leaders know the producer's sequences.
    assert [producer.produce(*where) for where in ALL] == ["NONE"] * 6
    assert producer.end() == "NONE"
    assert is_stable(nodes)
    assert [nodes.partition(*where).high_watermark for where in ALL] == [3] * 6


def test_a_node_that_starts_again_knows_all_topics_and_leads_what_it_is_given(nodes: PureNodes) -> None:
    nodes.stop(2)
    create(nodes, "later")
    nodes.start(2)
    assert nodes.clusters[2].topics.keys() == nodes.clusters[1].topics.keys()
    assert 2 not in leaders(nodes)
    nodes.controller.move_leader("orders", 0, 2, nodes.now_ms)
    assert nodes.leader("orders", 0) == 2
    assert PureProducer(nodes, "t1").produce("orders", 0) == "NONE"


def test_what_happened_while_a_node_was_paused_is_known_when_it_comes_back(nodes: PureNodes) -> None:
    create(nodes, "doomed")
    create(nodes, "again")
    nodes.pause(2)
    names = ["doomed", "again"]
    nodes.call(1, DeleteTopicsRequest(topic_names=names), 5)
    create(nodes, "again", 2)
    create(nodes, "later")
    nodes.resume(2)
    for seen in (nodes.clusters[2], nodes.clusters[1]):
        assert seen.topics.keys() == {"orders", "again", "later"}
        assert {topic.topic_id: topic.name for topic in seen.topics.values()} == {
            topic_id: topic.name for topic_id, topic in seen.topics_by_id.items()
        }
        assert seen.topics["again"].partition_count == 2
    assert nodes.clusters[2].topics["again"].partitions == {}


def test_leader_epochs_never_fall_and_never_come_twice(nodes: PureNodes) -> None:
    highest = max(epochs(nodes).values())
    for step in ("stop 1", "start 1", "pause 2", "resume 2", "move", "restart", "stop 3", "restart"):
        before = epochs(nodes), {where: nodes.leader(*where) for where in ALL}
        how, _, node_id = step.partition(" ")
        if how == "restart":
            nodes = PureNodes(3, storage=after_kill(nodes.storage))
        elif how == "move":
            nodes.controller.move_leader("orders", 0, 2, nodes.now_ms)
        else:
            getattr(nodes, how)(int(node_id))
        after = epochs(nodes)
        for where in ALL:
            assert after[where] >= before[0][where]
            if nodes.leader(*where) != before[1][where]:
                assert after[where] > highest, f"{where} after {step}"
        highest = max(highest, *after.values())


def test_the_last_node_cannot_stop(nodes: PureNodes) -> None:
    nodes.stop(1)
    nodes.pause(2)
    for order in (nodes.stop, nodes.pause):
        with pytest.raises(NodeOrderRefused, match="node 3 is the last one that is up"):
            order(3)
    nodes.paused.discard(3)
    assert leaders(nodes) == {3}
    assert PureProducer(nodes, "t1").produce("orders", 0) == "NONE"


def test_a_leader_moves_only_to_a_node_that_is_up(nodes: PureNodes) -> None:
    nodes.stop(1)
    for topic, index, node_id, said in (
        ("orders", 0, 1, "node 1 is not up\n\nhint: choose one of 2, 3"),
        ("orders", 6, 2, "there is no partition orders:6"),
        ("nothing", 0, 2, "there is no partition nothing:0"),
    ):
        with pytest.raises(NodeOrderRefused, match=said):
            nodes.controller.move_leader(topic, index, node_id, nodes.now_ms)


def test_nothing_moves_if_the_disk_refuses_the_new_epoch(nodes: PureNodes) -> None:
    before = epochs(nodes)
    nodes.storage.full = True
    for order in (nodes.controller.leave, nodes.controller.expire):
        with pytest.raises(StorageFailed):
            order(2, nodes.now_ms)
    nodes.storage.full = False
    assert epochs(nodes) == before
    assert leaders(nodes) == {1, 2, 3}
    assert [PureProducer(nodes, "t1").produce("orders", index) for index in PARTITIONS] == ["NONE"] * 6


# --- requests that wait -----------------------------------------------------------------------------------------------


def test_a_fetch_that_waits_learns_that_the_leader_has_moved(nodes: PureNodes) -> None:
    there = nodes.leader("orders", 0)
    partition = FetchRequest.FetchPartition(0, partition_max_bytes=100)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchRequest.FetchTopic("orders", partitions=[partition])]
    )
    waiting = nodes.send(there, request, 11)
    assert waiting.response is None
    nodes.controller.move_leader("orders", 0, there % 3 + 1, nodes.now_ms)
    assert waiting.response is not None
    assert waiting.response.responses[0].partitions[0].error_code == errors.NOT_LEADER_OR_FOLLOWER


def join_request(member_id: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest("g", 10_000, 10_000, member_id, None, "consumer", protocols)


def test_a_member_that_waits_for_others_learns_that_the_coordinator_has_moved(nodes: PureNodes) -> None:
    there = nodes.coordinator_of_group("g")
    nodes.call(there, join_request(""), 0)
    second = nodes.send(there, join_request(""), 0)
    assert second.response is None, "it waits for the first to join again"
    index = nodes.clusters[1].groups.partition_of("g", nodes.now_ms)
    nodes.controller.move_leader("__consumer_offsets", index, there % 3 + 1, nodes.now_ms)
    assert second.response is not None
    assert second.response.error_code == errors.NOT_COORDINATOR


# --- coordinators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "pause"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_finishes_what_the_last_one_has_decided(how: str, commit: bool, nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert [producer.produce(*where) for where in ALL] == ["NONE"] * 6
    nodes.network.is_plugged = False
    producer.send_end(commit)
    nodes.advance(1000)
    assert state_of(nodes, "t1") == ("PrepareCommit" if commit else "PrepareAbort")
    getattr(nodes, how)(producer.coordinator)
    nodes.network.is_plugged = True
    nodes.advance(1000)
    assert state_of(nodes, "t1") == ("CompleteCommit" if commit else "CompleteAbort")
    assert is_stable(nodes)
    # The client asks again, at the new coordinator, because it had no answer.
    assert producer.end(commit) == "NONE"


def test_a_client_whose_coordinator_moves_after_the_decision_is_told_the_outcome(nodes: PureNodes) -> None:
    """It could not learn it later if another producer got the id first."""
    producer = PureProducer(nodes, "t1")
    assert [producer.produce(*where) for where in ALL] == ["NONE"] * 6
    nodes.network.is_plugged = False
    ending = producer.send_end()
    nodes.advance(50)
    index = nodes.clusters[1].txns.partition_of("t1", nodes.now_ms)
    nodes.controller.move_leader(TXN_TOPIC, index, producer.coordinator % 3 + 1, nodes.now_ms)
    nodes.network.is_plugged = True
    nodes.advance(1000)
    assert ending.response is not None
    assert ending.response.error_code == errors.NONE
    assert is_stable(nodes)
    producer.producer_id, producer.epoch = ending.response.producer_id, ending.response.producer_epoch
    producer.sequences.clear()
    assert producer.produce(*ALL[0]) == "NONE"
    assert producer.end() == "NONE"


def test_a_client_whose_coordinator_moves_while_it_aborts_for_a_new_producer_is_told_to_go_there() -> None:
    syncs: deque[Callable[[], None]] = deque()  # Those under way.
    settings = {"fencepost.flush.on.commit": "true", "transaction.version": "1"}
    nodes = PureNodes(2, settings, MemoryStorage(later=syncs.append))
    nodes.clusters[1].create_topic("orders", 1, {}, nodes.now_ms)
    coordinator = nodes.coordinator_of("t1")
    init = InitProducerIdRequest("t1", 60_000)
    first = nodes.send(coordinator, init, 5)
    syncs.popleft()()
    assert first.response is not None
    where = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("orders", [0])
    added = AddPartitionsToTxnRequest((), "t1", first.response.producer_id, first.response.producer_epoch, [where])
    nodes.call(coordinator, added, 3)

    second = nodes.send(coordinator, init, 5)
    for _ in range(2):  # Of the decision, and of the markers. The one of CompleteAbort is under way then.
        syncs.popleft()()
        nodes.deliver()
    [last] = syncs
    index = nodes.clusters[1].txns.partition_of("t1", nodes.now_ms)
    nodes.controller.move_leader(TXN_TOPIC, index, coordinator % 2 + 1, nodes.now_ms)
    last()
    assert second.response is not None
    assert second.response.error_code == errors.NOT_COORDINATOR


def test_a_coordinator_that_moves_before_all_ids_are_fenced_after_a_power_loss_fences_the_rest(
    nodes: PureNodes,
) -> None:
    """A power loss may have lost the records of the last epochs, so no epoch of the same producer id is given out."""
    producer = PureProducer(nodes, "t1")
    assert [producer.produce(*where) for where in ALL] == ["NONE"] * 6
    storage = after_kill(nodes.storage)
    storage.may_have_lost_appends = True
    after = PureNodes(3, storage=storage)  # The markers that end the transaction are under way.
    index = after.clusters[1].txns.partition_of("t1", after.now_ms)
    after.controller.move_leader(TXN_TOPIC, index, after.coordinator_of("t1") % 3 + 1, after.now_ms)
    after.advance(1000)
    assert PureProducer(after, "t1").producer_id > producer.producer_id
    assert is_stable(after)


def offset_commit(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset)
    return OffsetCommitRequest(
        "g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[partition])]
    )


def commit_offset(nodes: PureNodes, node_id: int, offset: int) -> str:
    return errors.name_of(nodes.call(node_id, offset_commit(offset), 8).topics[0].partitions[0].error_code)


def committed_offset(nodes: PureNodes) -> Any:
    wanted = [OffsetFetchRequest.OffsetFetchRequestTopic("orders", [0])]
    reply = nodes.call(nodes.coordinator_of_group("g"), OffsetFetchRequest("g", wanted), 7)
    return reply.topics[0].partitions[0].committed_offset


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_committed_offsets_move_with_their_coordinator(how: str, nodes: PureNodes) -> None:
    assert commit_offset(nodes, nodes.coordinator_of_group("g"), 5) == "NONE"
    getattr(nodes, how)(nodes.coordinator_of_group("g"))
    assert committed_offset(nodes) == 5
    assert commit_offset(nodes, nodes.coordinator_of_group("g"), 6) == "NONE"


def loaded_groups(nodes: PureNodes) -> int:
    """How many partitions of `__consumer_offsets` have their groups in memory."""
    awake = [cluster for node_id, cluster in nodes.clusters.items() if node_id not in nodes.paused]
    return sum(home.is_loaded for cluster in awake for home in cluster.groups._homes.values())


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_a_failover_does_not_wait_until_groups_are_loaded(how: str, nodes: PureNodes) -> None:
    there = nodes.coordinator_of_group("g")
    assert commit_offset(nodes, there, 5) == "NONE"
    all_of_them = loaded_groups(nodes)
    handed_over = len(nodes.clusters[there].groups._homes)
    getattr(nodes, how)(there)
    assert loaded_groups(nodes) == all_of_them - handed_over
    assert committed_offset(nodes) == 5, "a group that is asked for is loaded at once"
    assert loaded_groups(nodes) == all_of_them - handed_over + 1
    nodes.advance(1000)
    assert loaded_groups(nodes) == all_of_them


def test_a_list_of_groups_has_those_that_are_not_loaded_yet(nodes: PureNodes) -> None:
    assert commit_offset(nodes, nodes.coordinator_of_group("g"), 5) == "NONE"
    nodes.stop(nodes.coordinator_of_group("g"))
    reply = nodes.call(nodes.coordinator_of_group("g"), ListGroupsRequest(), 4)
    assert [group.group_id for group in reply.groups] == ["g"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_comes_before_its_group_is_loaded_counts(commit: bool, nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert producer.commit_offset("g", "orders", 5) == "NONE"
    nodes.pause(nodes.coordinator_of_group("g"))
    before = loaded_groups(nodes)
    assert producer.end(commit) == "NONE"
    assert loaded_groups(nodes) == before
    assert committed_offset(nodes) == (5 if commit else -1)


def test_an_offset_of_a_topic_that_is_deleted_before_its_group_is_loaded_is_gone(nodes: PureNodes) -> None:
    assert commit_offset(nodes, nodes.coordinator_of_group("g"), 5) == "NONE"
    nodes.stop(nodes.coordinator_of_group("g"))
    node_id = min(nodes.nodes)
    assert nodes.call(node_id, DeleteTopicsRequest(topic_names=["orders"]), 5).responses[0].error_code == errors.NONE
    create(nodes, "orders")
    assert committed_offset(nodes) == -1


def test_an_offset_that_waits_for_its_coordinator_does_not_count_for_a_later_topic_of_the_same_name(
    nodes: PureNodes,
) -> None:
    home = nodes.coordinator_of_group("g")
    elsewhere = next(name for name in map("t{}".format, range(50)) if nodes.coordinator_of(name) != home)
    producer = PureProducer(nodes, elsewhere)
    pending = nodes.send(home, producer.offset_request("g", "orders", 5), 5)
    assert pending.response is None
    held = list(nodes.network.under_way)
    nodes.network.under_way.clear()
    assert nodes.call(home, DeleteTopicsRequest(topic_names=["orders"]), 5).responses[0].error_code == errors.NONE
    create(nodes, "orders")
    nodes.network.under_way.extend(held)
    nodes.deliver()
    assert pending.response is not None
    error = pending.response.topics[0].partitions[0].error_code
    assert errors.name_of(error) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert producer.end() == "NONE"
    assert committed_offset(nodes) == -1


def test_a_node_that_lost_a_group_before_it_was_loaded_sends_its_members_away(nodes: PureNodes) -> None:
    assert commit_offset(nodes, nodes.coordinator_of_group("g"), 5) == "NONE"
    nodes.pause(nodes.coordinator_of_group("g"))
    zombie = nodes.coordinator_of_group("g")
    nodes.pause(zombie)
    nodes.paused.discard(zombie)
    assert commit_offset(nodes, zombie, 6) == "NOT_COORDINATOR"
    nodes.advance(1000)
    assert [notice for notice in nodes.notices if "cannot be loaded now" in notice] != []
    assert committed_offset(nodes) == 5


# --- a paused node that comes back and does not know yet --------------------------------------------------------------


def test_a_paused_leader_that_comes_back_cannot_write(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    zombie = nodes.leader("orders", 0)
    assert producer.produce("orders", 0) == "NONE"
    nodes.pause(zombie)
    nodes.paused.discard(zombie)  # It runs again, and has not heard from the controller.
    end = nodes.partition("orders", 0).high_watermark
    assert producer.produce("orders", 0, node_id=zombie) == "NOT_LEADER_OR_FOLLOWER"
    assert nodes.partition("orders", 0).high_watermark == end
    assert producer.produce("orders", 0) == "NONE"


def test_a_paused_coordinator_that_comes_back_decides_nothing(nodes: PureNodes) -> None:
    producer = PureProducer(nodes, "t1")
    assert [producer.produce(*where) for where in ALL] == ["NONE"] * 6
    zombie = producer.coordinator
    nodes.pause(zombie)
    nodes.paused.discard(zombie)  # It runs again, and has not heard from the controller.
    commit = EndTxnRequest("t1", producer.producer_id, producer.epoch, True)
    assert nodes.call(zombie, commit, 5).error_code == errors.NOT_COORDINATOR
    assert producer.end(commit=False) == "NONE"
    assert is_stable(nodes)


def test_a_paused_coordinator_of_a_group_that_comes_back_keeps_no_offset(nodes: PureNodes) -> None:
    zombie = nodes.coordinator_of_group("g")
    assert commit_offset(nodes, zombie, 5) == "NONE"
    nodes.pause(zombie)
    nodes.paused.discard(zombie)
    assert commit_offset(nodes, zombie, 6) == "NOT_COORDINATOR"
    assert committed_offset(nodes) == 5


def test_a_marker_of_a_replaced_coordinator_does_not_end_the_next_transaction(nodes: PureNodes) -> None:
    """With version 1 both transactions have the same epoch, so only the coordinator's epoch tells them apart."""
    producer = PureProducer(nodes, "t1", version=1)
    zombie = producer.coordinator
    where = next(place for place in ALL if nodes.leader(*place) != zombie)
    assert producer.add("orders", where[1]) == "NONE"
    assert producer.produce(*where) == "NONE"
    producer.send_end()
    marker = nodes.network.under_way.popleft()  # It is under way for a long time.
    nodes.pause(zombie)
    nodes.advance(1000)
    assert state_of(nodes, "t1") == "CompleteCommit"
    assert producer.add("orders", where[1]) == "NONE"
    assert producer.produce(*where) == "NONE"
    marker()
    assert nodes.partition(*where).has_open_txn(producer.producer_id, producer.epoch)
    assert producer.end(commit=False) == "NONE"


def test_a_handle_on_a_log_is_fenced_when_another_leader_takes_the_log_over() -> None:
    storage = MemoryStorage()
    old = storage.open_log("orders", 0, b"1" * 16, LogConfig())
    batch = encode_batch([(None, b"x")], 0)
    old.append(batch, 0, 0, 0)
    new = storage.take_over("orders", 0)
    for call in (
        lambda: old.append(batch, 1, 1, 0),
        lambda: old.read(0, 100, old.end_address),
        old.roll,
        lambda: old.rewrite(0, 1),
    ):
        with pytest.raises(LogFenced):
            call()
    old.save_snapshot(b"stale")
    assert new.load_snapshot() is None
    assert new.append(batch, 1, 1, 0) == len(batch)
    assert storage.open_logs([("orders", 0), ("orders", 1)]) == [new]


@pytest.mark.parametrize("how", ["move", "stop", "pause"])
def test_batches_that_are_sent_again_to_the_new_leader_are_stored_once(how: str, nodes: PureNodes) -> None:
    """A producer has up to five batches under way, and does not know which of them the old leader has stored."""
    leader = nodes.leader("orders", 0)
    batches = [encode_batch([(None, b"x")], nodes.now_ms, 7, 0, sequence) for sequence in range(7)]

    def send(sequence: int) -> tuple[int, int]:
        data = ProduceRequest.PartitionProduceData(0, batches[sequence])
        request = ProduceRequest(None, -1, 1000, [ProduceRequest.TopicProduceData("orders", partition_data=[data])])
        result = nodes.call(nodes.leader("orders", 0), request, 11).responses[0].partition_responses[0]
        return result.error_code, result.base_offset

    for sequence in range(6):
        assert send(sequence) == (errors.NONE, sequence)
    if how == "move":
        nodes.controller.move_leader("orders", 0, leader % 3 + 1, nodes.now_ms)
    else:
        getattr(nodes, how)(leader)
    assert nodes.leader("orders", 0) != leader
    assert [send(sequence) for sequence in range(1, 7)] == [(errors.NONE, sequence) for sequence in range(1, 7)]
