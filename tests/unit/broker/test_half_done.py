"""Changes of leaders and topics that break off in the middle: nothing has changed, or the process stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import pytest

from fencepost.broker.topics import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.machines.log.interface import LogTailUnknown, StorageFailed, StoredBatch
from fencepost.machines.log.memory import MemoryLog
from fencepost.protocol.topic_partition import TopicPartition
from tests.broken_off import break_off
from tests.pure_nodes import PureNodes
from tests.pure_producer import PureProducer

FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "1"}


def new_nodes() -> PureNodes:
    nodes = PureNodes(2, FEW)
    nodes.clusters[1].create_topic("orders", 2, {}, nodes.now_ms)
    producer = PureProducer(nodes, "t")
    assert [producer.produce("orders", index) for index in (0, 1)] == ["NONE"] * 2
    assert producer.commit_offset("g", "orders", 5) == "NONE"
    assert producer.end() == "NONE"
    return nodes


def leaders(nodes: PureNodes) -> dict[TopicPartition, int]:
    found = nodes.controller._leaders.items()
    return {(topic, index): leader.node_id for topic, led in found for index, leader in enumerate(led)}


def served(nodes: PureNodes) -> dict[TopicPartition, int]:
    """The partitions that a node serves whose log is not fenced, with their coordinators."""
    found = {}
    for node_id, cluster in nodes.clusters.items():
        for topic in cluster.topics.values():
            for index, partition in topic.partitions.items():
                with suppress(StorageFailed):
                    partition.log.read(0, 1, partition.log.end_address)
                    assert index in cluster.txns.shards or topic.name != TXN_TOPIC
                    assert index in cluster.groups._homes or topic.name != OFFSETS_TOPIC
                    found[topic.name, index] = node_id
    return found


def commits_everywhere(nodes: PureNodes) -> None:
    """A transaction over all partitions, and offsets."""
    producer = PureProducer(nodes, "t")
    for index in range(len(nodes.controller._leaders["orders"])):
        assert producer.produce("orders", index) == "NONE"
    assert producer.commit_offset("g", "orders", 6) == "NONE"
    assert producer.end() == "NONE"


def move(nodes: PureNodes, node_id: int) -> None:
    for topic, index in nodes.controller.led_by(node_id):
        nodes.controller.move_leader(topic, index, 3 - node_id, nodes.now_ms)


ORDERS: dict[str, Callable[[PureNodes, int], None]] = {
    "stop": lambda nodes, node_id: nodes.controller.leave(node_id, nodes.now_ms),
    "pause": lambda nodes, node_id: nodes.controller.expire(node_id, nodes.now_ms),
    "move": move,
}


@pytest.mark.parametrize("topic", ["orders", TXN_TOPIC])
@pytest.mark.parametrize("name", ORDERS)
def test_a_log_that_its_next_leader_cannot_read_stays_where_it_is_and_so_do_the_others(
    name: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = new_nodes()
    before = leaders(nodes)
    node_id = nodes.leader(topic, 1)
    [unreadable] = nodes.storage.open_logs([(topic, 1)])
    scan = MemoryLog.scan

    def failing_scan(log: MemoryLog, from_offset: int) -> Iterator[StoredBatch]:
        if log._batches is unreadable._batches:  # type: ignore[attr-defined]
            raise StorageFailed("a sector of the disk is gone")
        return scan(log, from_offset)

    with monkeypatch.context() as disk:
        disk.setattr(MemoryLog, "scan", failing_scan)
        with pytest.raises(StorageFailed, match="a sector of the disk is gone"):
            ORDERS[name](nodes, node_id)
    if name != "move":
        assert leaders(nodes) == before
    assert served(nodes) == leaders(nodes)
    assert leaders(nodes)[topic, 1] == node_id
    commits_everywhere(nodes)
    ORDERS[name](nodes, node_id)
    assert leaders(nodes)[topic, 1] == 3 - node_id


def create(nodes: PureNodes, node_id: int) -> None:
    nodes.clusters[node_id].create_topic("more", 2, {}, nodes.now_ms)


def delete(nodes: PureNodes, node_id: int) -> None:
    draft = nodes.clusters[node_id].draft()
    draft.delete("orders")
    nodes.clusters[node_id].commit(draft, nodes.now_ms)


CHANGES = {**ORDERS, "create a topic": create, "delete a topic": delete}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_breaks_off_has_changed_nothing_or_everything_or_stops_the_process(name: str) -> None:
    CHANGES[name](new_nodes(), 1)
    stopped = 0
    for number in count(1):
        nodes = new_nodes()
        broken_off = break_off(lambda: CHANGES[name](nodes, 1), number)  # noqa: B023
        if broken_off is None:
            break
        place, raised = broken_off
        if isinstance(raised, LogTailUnknown):
            stopped += 1
            continue
        assert served(nodes) == leaders(nodes), place
        living = [cluster for cluster in nodes.clusters.values() if nodes.controller.is_alive(cluster.node_id)]
        assert {id(cluster.metadata) for cluster in living} == {id(nodes.controller.metadata)}, place
        assert {topic for topic, _ in leaders(nodes)} == set(nodes.controller.metadata.topics), place
    assert stopped, "the lines behind the first change were broken off too"
