"""Several nodes without sockets, files or a real clock: pure Nodes over one memory storage, with a network of a list.

    nodes = PureNodes(3)
    reply = nodes.call(2, MetadataRequest(), version=12)
    nodes.network.is_plugged = False        # Requests between nodes get no answer.

A request between nodes is delivered by `deliver`, which `call` does until there is nothing left to deliver.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fencepost.broker.acls import NODE
from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import parse
from fencepost.broker.controller import Controller
from fencepost.broker.node import Node
from fencepost.broker.peers import Answered
from fencepost.broker.topics import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.machines.log.memory import MemoryStorage
from fencepost.machines.partition.partition import Partition
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Message
from tests.pure_broker import START_MS, Pending, PureConnection
from tests.wire.raw_client import decode_reply, encode_frame

SETTINGS = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"}


class PeerConnection(PureConnection):
    def __init__(self, answered: Callable[[bytes], None]) -> None:
        super().__init__(NODE)
        self._answered = answered

    def reply(self, parts: list[Part]) -> None:
        super().reply(parts)
        self._answered(self.frames[0])


class Network:
    """The requests and answers under way between nodes, oldest first."""

    def __init__(self, nodes: PureNodes) -> None:
        self._nodes = nodes
        self.under_way: deque[Callable[[], None]] = deque()
        self.is_plugged = True
        self.sent: list[tuple[int, int, Message]] = []  # From, to, what.

    def send(self, source: int, target: int, request: Message, version: int, then: Answered) -> None:
        self.sent.append((source, target, request))

        def answered(frame: bytes) -> None:
            response = decode_reply(request, version, frame)
            self.under_way.append(lambda: reach_source(response) if self.is_plugged else reach_source(None))

        def reach_source(response: Any) -> None:
            with self._nodes.acting_as(source):
                then(response, self._nodes.now_ms)

        def arrive() -> None:
            frame = encode_frame(request, version)
            with self._nodes.acting_as(target):
                self._nodes.nodes[target].handle(frame, PeerConnection(answered), self._nodes.now_ms)

        def is_reached() -> bool:
            return self.is_plugged and target in self._nodes.nodes and target not in self._nodes.paused

        self.under_way.append(lambda: arrive() if is_reached() else reach_source(None))


class NodePeers:
    def __init__(self, node_id: int, network: Network) -> None:
        self._node_id = node_id
        self._network = network

    def send(self, node_id: int, request: Message, version: int, then: Answered) -> None:
        assert node_id != self._node_id
        self._network.send(self._node_id, node_id, request, version, then)


class PureNodes:
    def __init__(
        self,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        storage: MemoryStorage | None = None,
        cluster_class: type[Cluster] = Cluster,
    ) -> None:
        self.acting: int | None = None
        self._cluster_class = cluster_class
        self.config = parse(SETTINGS | dict(settings or {}))
        self.storage = storage or MemoryStorage()
        self.now_ms = START_MS
        self.notices: list[str] = []
        self.network = Network(self)
        self.controller = Controller(self.storage, self.config, random.Random(1))
        self.controller.addresses = [BrokerAddress(n, "127.0.0.1", 9091 + n) for n in range(1, count + 1)]
        self.clusters: dict[int, Cluster] = {}
        self.nodes: dict[int, Node] = {}
        self.paused: set[int] = set()
        for node_id in range(1, count + 1):
            self.controller.join(self._make(node_id))
        self.controller.start(self.now_ms)

    def _make(self, node_id: int) -> Cluster:
        cluster = self._cluster_class(
            self.storage,
            self.config,
            random.Random(node_id),
            self.notices.append,
            node_id=node_id,
            controller=self.controller,
        )
        cluster.peers = NodePeers(node_id, self.network)
        self.clusters[node_id] = cluster
        self.nodes[node_id] = Node(node_id, cluster)
        return cluster

    def send(self, node_id: int, request: Message, version: int) -> Pending:
        connection = PureConnection()
        with self.acting_as(node_id):
            self.nodes[node_id].handle(encode_frame(request, version), connection, self.now_ms)
        return Pending(request, version, connection)

    @contextmanager
    def acting_as(self, node_id: int | None) -> Iterator[None]:
        """Whatever runs in this block is the work of one node, or of the test (None)."""
        before, self.acting = self.acting, node_id
        try:
            yield
        finally:
            self.acting = before

    def call(self, node_id: int, request: Message, version: int) -> Any:
        """Send a request that must be answered, once the nodes have asked one another."""
        pending = self.send(node_id, request, version)
        self.deliver()
        assert pending.response is not None, f"{type(request).__name__} v{version} was not answered"
        return pending.response

    def deliver(self) -> None:
        while self.network.under_way:
            self.network.under_way.popleft()()

    def advance(self, ms: int) -> None:
        """Let time pass on all nodes."""
        end_ms = self.now_ms + ms
        while True:
            self.deliver()
            awake = {n: cluster for n, cluster in self.clusters.items() if n not in self.paused}
            due = {n: d for n, c in awake.items() if (d := c.timers.next_deadline_ms()) is not None}
            node_id = min(due, key=lambda n: due[n], default=None)
            if node_id is None or due[node_id] > end_ms:
                break
            self.now_ms = max(self.now_ms, due[node_id])
            with self.acting_as(node_id):
                self.clusters[node_id].timers.advance(self.now_ms)
        self.now_ms = end_ms

    # --- nodes come and go --------------------------------------------------------------------------------

    def stop(self, node_id: int) -> None:
        self.controller.leave(node_id, self.now_ms)
        del self.nodes[node_id], self.clusters[node_id]

    def start(self, node_id: int) -> None:
        """A new process with the id of one that has stopped."""
        cluster = self._make(node_id)
        self.controller.rejoin(cluster, self.now_ms)
        cluster.begin_timers(self.now_ms)

    def pause(self, node_id: int) -> None:
        """The node does nothing, and the controller counts it as dead."""
        self.paused.add(node_id)
        self.controller.expire(node_id, self.now_ms)

    def resume(self, node_id: int) -> None:
        self.paused.discard(node_id)
        self.controller.rejoin(self.clusters[node_id], self.now_ms)

    # --- where things are ---------------------------------------------------------------------------------

    def _any(self) -> Cluster:
        return next(cluster for node_id, cluster in self.clusters.items() if node_id not in self.paused)

    def leader(self, topic: str, index: int) -> int:
        return self.controller.leader_of(topic, index).node_id

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, on the node that leads it."""
        return self.clusters[self.leader(topic, index)].topics[topic].partitions[index]

    def coordinator_of(self, transactional_id: str) -> int:
        return self.leader(TXN_TOPIC, self._any().txns.partition_of(transactional_id, self.now_ms))

    def coordinator_of_group(self, group_id: str) -> int:
        return self.leader(OFFSETS_TOPIC, self._any().groups.partition_of(group_id, self.now_ms))
