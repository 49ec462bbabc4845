"""Three brokers, each of which a test can ask by itself, lose, and cut off from the others.

    with apache_kafka_cluster(with_doors=True) as cluster:
        brokers = ApacheBrokers(cluster)
        brokers.call(2, MetadataRequest(None), 12)
        brokers.lose(2)

`FencepostBrokers` is the same for `--brokers 3`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.messages import CreateTopicsRequest, FindCoordinatorRequest, MetadataRequest
from fencepost.protocol.schema import Message
from fencepost.testing import Broker
from tests.engines.apache_kafka import ApacheKafkaCluster
from tests.wire.raw_client import Closed, RawClient

NODE_IDS = (1, 2, 3)
# As many as `apache_kafka_cluster` has.
COORDINATOR_PARTITIONS = 3
SETTINGS = {
    "transaction.state.log.num.partitions": COORDINATOR_PARTITIONS,
    "offsets.topic.num.partitions": COORDINATOR_PARTITIONS,
    # As Apache Kafka does it: EndTxn is answered when the outcome is decided.
    "fencepost.endtxn.reply": "prepare",
}
GROUP_KEY, TXN_KEY = 0, 1
# On a busy machine an Apache Kafka takes its time to notice that another one is gone.
PATIENCE_S = 90.0

CreatableTopic = CreateTopicsRequest.CreatableTopic


class Unanswered(Exception):
    """The broker is gone, or ended the connection."""


class ThreeBrokers(ABC):
    """What both kinds have in common."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self.ports = dict(ports)
        self._clients: dict[int, RawClient] = {}

    def call(self, node_id: int, request: Message, version: int) -> Any:
        """Ask one broker. Raises Unanswered."""
        try:
            if node_id not in self._clients:
                self._clients[node_id] = RawClient("127.0.0.1", self.ports[node_id])
            return self._clients[node_id].call(request, version)
        except (Closed, OSError) as e:
            self.disconnect(node_id)
            raise Unanswered(f"broker {node_id}: {e}") from None

    def disconnect(self, node_id: int) -> None:
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for node_id in list(self._clients):
            self.disconnect(node_id)

    @abstractmethod
    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        """Create a topic; `replicas` are the brokers of each partition, its leader first."""

    @abstractmethod
    def lose(self, node_id: int) -> None:
        """The broker is gone, without a word."""

    @abstractmethod
    def cut_off(self, node_id: int) -> None:
        """No request of another broker, such as a marker, reaches this one until `reconnect`. Clients reach it."""

    @abstractmethod
    def reconnect(self, node_id: int) -> None:
        """Undo `cut_off`."""

    @abstractmethod
    def heal(self) -> None:
        """All brokers are up again."""

    # --- where things are ---------------------------------------------------------------------------------

    def leader_and_epoch(self, ask: int, topic: str, index: int) -> tuple[int, int]:
        """What the broker `ask` believes; (-1, -1) if it knows of no leader."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        found = self.call(ask, MetadataRequest(wanted, allow_auto_topic_creation=False), 12).topics[0]
        for partition in found.partitions:
            if partition.partition_index == index:
                return partition.leader_id, partition.leader_epoch
        return -1, -1

    def coordinator(self, ask: int, key: str, key_type: int) -> int:
        """The broker that `ask` takes for the coordinator; -1 if it knows of none."""
        reply = self.call(ask, FindCoordinatorRequest(key, key_type), 3)
        return -1 if reply.error_code else int(reply.node_id)

    def await_leaders(self, topic: str, leaders: Sequence[int]) -> None:
        """Every broker knows of the leaders of all partitions of a topic."""
        for node_id in NODE_IDS:
            for index, leader in enumerate(leaders):
                what = f"broker {node_id} knows that {leader} leads {topic}-{index}"
                wait_until(what, self._knows_leader, node_id, topic, index, leader)

    def _knows_leader(self, ask: int, topic: str, index: int, leader: int) -> bool:
        return self.leader_and_epoch(ask, topic, index)[0] == leader


class ApacheBrokers(ThreeBrokers):
    def __init__(self, cluster: ApacheKafkaCluster) -> None:
        super().__init__({node_id: node.port for node_id, node in cluster.nodes.items()})
        self.cluster = cluster

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        kind = CreateTopicsRequest.CreatableReplicaAssignment
        assignments = [kind(index, list(nodes)) for index, nodes in enumerate(replicas)]
        topic = CreatableTopic(name, -1, -1, assignments, [CreateTopicsRequest.CreatableTopicConfig(*ONE_IN_SYNC)])
        check_created(self.call(NODE_IDS[0], CreateTopicsRequest([topic], 30_000), 5))
        self.await_leaders(name, [nodes[0] for nodes in replicas])

    def lose(self, node_id: int) -> None:
        self.cluster.kill(node_id)
        self.disconnect(node_id)

    def cut_off(self, node_id: int) -> None:
        self.cluster.doors[node_id].shut()

    def reconnect(self, node_id: int) -> None:
        self.cluster.doors[node_id].open()

    def heal(self) -> None:
        self.cluster.start()


class FencepostBrokers(ThreeBrokers):
    """`how` a node is lost: stop or pause. A paused node is cut off from the others too, and does not know it."""

    def __init__(self, broker: Broker, how: str = "stop") -> None:
        super().__init__({node.node_id: node.port for node in broker.nodes.describe()})
        self.broker = broker
        self.how = how

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        topic = CreatableTopic(name, len(replicas), len(replicas[0]))
        check_created(self.call(NODE_IDS[0], CreateTopicsRequest([topic], 30_000), 5))
        for index, nodes in enumerate(replicas):
            self.broker.nodes.move_leader(name, index, nodes[0])
        self.await_leaders(name, [nodes[0] for nodes in replicas])

    def lose(self, node_id: int) -> None:
        getattr(self.broker.nodes, self.how)(node_id)
        self.disconnect(node_id)

    def cut_off(self, node_id: int) -> None:
        self.broker.nodes.unplug()

    def reconnect(self, node_id: int) -> None:
        self.broker.nodes.plug()

    def heal(self) -> None:
        for node in self.broker.nodes.describe():
            if node.state == "stopped":
                self.broker.nodes.start(node.node_id)
            elif node.state == "paused":
                self.broker.nodes.resume(node.node_id)


# A topic with one replica can be written to all the same.
ONE_IN_SYNC = ("min.insync.replicas", "1")


def check_created(reply: Any) -> None:
    [topic] = reply.topics
    assert topic.error_code == 0, f"{errors.name_of(topic.error_code)} {topic.error_message}"


def wait_until(what: str, is_so: Callable[..., bool], *given: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so(*given):
        assert time.monotonic() < deadline, f"not after {PATIENCE_S:g} s: {what}"
        time.sleep(0.05)
