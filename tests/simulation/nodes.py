"""Several nodes in the simulated process: the network between them, and nodes that pause, stop and come back.

A message between nodes can be slow, lost, or arrive twice before its answer. Requests can overtake one another. A copy
that arrives after the answer is left out: with transaction versions below 2, a late marker ends the next transaction on
any broker, because both have the same epoch (KIP-890). Connections within one process cannot do that either.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.cluster import Cluster
from fencepost.broker.controller import NodeOrderRefused
from fencepost.broker.node import Node
from fencepost.broker.peers import Answered
from fencepost.broker.topics import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.txn.records import partition_for
from fencepost.protocol.batch import Part
from fencepost.protocol.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from tests.pure_broker import PureConnection
from tests.simulation.history import PLACES
from tests.simulation.network import REQUEST_TIMEOUT_MS
from tests.wire.raw_client import decode_reply, encode_frame

if TYPE_CHECKING:
    from tests.simulation.process import BrokerProcess
    from tests.simulation.world import World

OF_GROUPS = (HeartbeatRequest, JoinGroupRequest, SyncGroupRequest, TxnOffsetCommitRequest)
LOST_AFTER_MS = 150
LATEST_MS = 1000
LATENESS = (0.02, 0.1, 0.4)


class PeerEnd(PureConnection):
    """The connection on which a request of another node came."""

    def __init__(self, answered: Callable[[bytes], None]) -> None:
        super().__init__()
        self._answered = answered

    def reply(self, parts: list[Part]) -> None:
        super().reply(parts)
        self._answered(self.frames[0])


class SimulatedPeers:
    def __init__(self, nodes: Nodes, node_id: int) -> None:
        self._nodes = nodes
        self._node_id = node_id

    def send(self, node_id: int, request: Message, version: int, then: Answered) -> None:
        self._nodes.send(self._node_id, node_id, request, version, then)


class Nodes:
    """The nodes of one process. They end with it."""

    def __init__(self, process: BrokerProcess, world: World, clusters: list[Cluster]) -> None:
        self._process = process
        self._world = world
        self._controller = clusters[0].controller
        self.clusters = {cluster.node_id: cluster for cluster in clusters}
        self._by_id = {cluster.node_id: Node(cluster.node_id, cluster) for cluster in clusters}
        self._lateness = random.Random(world.seed + 3).choice(LATENESS)
        self._held: dict[int, list[Callable[[], None]]] = {}  # What waits for a paused node.
        self._stopped: set[int] = set()
        # What other nodes have asked each node and it has not answered: tells them that it will not.
        self._asked: dict[int, dict[object, Callable[[], None]]] = {node_id: {} for node_id in self.clusters}
        if len(clusters) > 1:
            for cluster in clusters:
                cluster.peers = SimulatedPeers(self, cluster.node_id)

    @property
    def awake(self) -> list[Cluster]:
        asleep = self._held.keys() | self._stopped
        return [cluster for node_id, cluster in self.clusters.items() if node_id not in asleep]

    # --- where requests go ----------------------------------------------------------------------------------

    def target_of(self, request: Message) -> int:
        """The node that a client asks which has just asked for metadata."""
        where = self._partition_for(request)
        leader = -1 if where is None else self._controller.leader_of(*where).node_id
        return leader if leader >= 0 else self.awake[0].node_id

    def _partition_for(self, request: Message) -> TopicPartition | None:
        """The partition whose leader serves the request; None: any node does."""
        if isinstance(request, ProduceRequest):
            data = request.topic_data[0]
            return data.name, data.partition_data[0].index
        if isinstance(request, OF_GROUPS):
            return OFFSETS_TOPIC, self._index_of(request.group_id, "offsets.topic")
        if isinstance(request, OffsetFetchRequest):
            return OFFSETS_TOPIC, self._index_of(request.groups[0].group_id, "offsets.topic")
        names = ("transactional_id", "v3_and_below_transactional_id")
        transactional_id = next((found for name in names if (found := getattr(request, name, None))), None)
        return None if not transactional_id else (TXN_TOPIC, self._index_of(transactional_id, "transaction.state.log"))

    def _index_of(self, key: str, prefix: str) -> int:
        return partition_for(key, self._world.config[f"{prefix}.num.partitions"])

    def _leader(self, topic: str, index: int) -> int:
        return self._controller.leader_of(topic, index).node_id

    def deliver(self, target: int, request: Message, version: int, who: str, call: Any) -> None:
        """Hand a client's request to a node; a paused node takes it later."""
        if isinstance(request, FetchRequest) and len(self.clusters) > 1:
            self._fetch(request, version, call)
            return
        if target in self._stopped:
            self._process.break_off(call)
            return
        frame = encode_frame(request, version, 1, who)
        handle = partial(self._by_id[target].handle, frame, call)
        self._run(target, lambda: handle(self._world.clock.now_ms))

    def _fetch(self, request: FetchRequest, version: int, call: Any) -> None:
        """A client asks the leader of each partition, without waiting, and takes all answers together."""
        merged = FetchResponse()
        responses: list[Any] = []
        for topic in request.topics:
            for partition in topic.partitions:
                asked = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=1,
                    max_bytes=request.max_bytes,
                    isolation_level=request.isolation_level,
                    topics=[FetchRequest.FetchTopic(topic.topic, partitions=[partition])],
                )
                connection = PureConnection()
                leader = self._leader(topic.topic, partition.partition)
                self._by_id[leader].handle(encode_frame(asked, version), connection, self._world.clock.now_ms)
                responses += decode_reply(asked, version, connection.frames[0]).responses
        merged.responses = responses
        out = bytearray()
        merged.encode_into(out, version)
        head = (len(out) + 5).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\0"
        call.reply([head, bytes(out)])

    def _run(self, node_id: int, work: Callable[[], None]) -> None:
        if node_id in self._held:
            self._held[node_id].append(work)
        else:
            work()

    # --- between nodes --------------------------------------------------------------------------------------

    def send(self, source: int, target: int, request: Message, version: int, then: Answered) -> None:
        world, rng = self._world, self._world.rng
        asked_by = self.clusters[source]
        underway = self._asked[target]
        is_answered = False

        def answer(response: Any) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                del underway[answer]
                if self.clusters[source] is asked_by:  # Else it was stopped, and another process has its id.
                    self._run(source, lambda: then(response, world.clock.now_ms))

        def answered(frame: bytes) -> None:
            response = decode_reply(request, version, frame)
            world.note(f"node {target}", "-> node %s: %s", source, response)
            # A late one comes when its client has given up, and may have ended the transaction.
            is_late = rng.random() < lateness
            delay_ms = rng.randint(REQUEST_TIMEOUT_MS, LATEST_MS) if is_late else rng.randint(1, 6)
            self._later(delay_ms, lambda: answer(response))

        underway[answer] = partial(answer, None)

        def arrive() -> None:
            if is_answered:
                return
            if target in self._stopped:
                answer(None)
                return
            world.note(f"node {source}", "-> node %s: %s", target, request)
            handle = partial(self._by_id[target].handle, encode_frame(request, version), PeerEnd(answered))
            self._run(target, lambda: handle(world.clock.now_ms))

        fate = rng.random()
        weather = world.weather
        lateness = 0.0 if world.is_calm else self._lateness
        if fate < weather.lose_request:
            self._later(LOST_AFTER_MS, lambda: answer(None))
            return
        fate -= weather.lose_request
        delay_ms = rng.randint(1, 10)
        if fate < lateness:
            delay_ms = rng.randint(10, LATEST_MS)  # The node that asked waits, unless it is paused or replaced.
            if isinstance(request, WriteTxnMarkersRequest):
                # Its successor ends the transaction, and the next one may begin before this marker arrives.
                delay_ms = rng.randint(100, 400)
                self._later(rng.randint(1, 5), partial(self._replace_coordinators, source))
        elif fate < lateness + weather.lose_reply:
            self._later(delay_ms, partial(self._execute_unanswered, target, request, version))
            self._later(delay_ms + LOST_AFTER_MS, lambda: answer(None))
            return
        self._later(delay_ms, arrive)
        if rng.random() < lateness:
            self._later(delay_ms + rng.randint(0, 3), arrive)

    def _execute_unanswered(self, target: int, request: Message, version: int) -> None:
        if target in self._stopped:
            return
        handle = partial(self._by_id[target].handle, encode_frame(request, version), PeerEnd(lambda frame: None))
        self._run(target, lambda: handle(self._world.clock.now_ms))

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        self._world.clock.after(delay_ms, lambda: self._process.enter_if_same(self, work))

    # --- nodes come and go ------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Pause or stop a node for a while, or move a leader."""
        rng = self._world.rng
        now_ms = self._world.clock.now_ms
        node_id = rng.choice(sorted(self.clusters))
        try:
            fate = rng.random()
            if fate < 0.5:
                (self._pause if fate < 0.3 else self._stop)(node_id)
                return
            places = [*PLACES, *((TXN_TOPIC, index) for index in range(2)), *((OFFSETS_TOPIC, i) for i in range(2))]
            topic, index = rng.choice(places)
            self._world.note("nodes", "node %s is to lead %s-%s", node_id, topic, index)
            self._controller.move_leader(topic, index, node_id, now_ms)
        except (NodeOrderRefused, StorageFailed) as e:
            self._world.note("nodes", "refused: %s", str(e))

    def _replace_coordinators(self, node_id: int) -> None:
        """Its markers are under way, and another node ends its transactions."""
        others = [cluster.node_id for cluster in self.awake if cluster.node_id != node_id]
        for topic, index in self._controller.led_by(node_id) if others else ():
            if topic == TXN_TOPIC:
                self._world.note("nodes", "node %s is to lead %s-%s", others[0], topic, index)
                with suppress(StorageFailed):
                    self._controller.move_leader(topic, index, others[0], self._world.clock.now_ms)

    def _pause(self, node_id: int) -> None:
        if not self._can_go(node_id):
            return
        self._world.note("nodes", "node %s pauses", node_id)
        self.clusters[node_id].housekeeping.stop()
        self._controller.expire(node_id, self._world.clock.now_ms)
        self._held[node_id] = []
        self._later(self._world.rng.randint(20, 900), lambda: self._resume(node_id))

    def _can_go(self, node_id: int) -> bool:
        return len(self.awake) > 1 and any(cluster.node_id == node_id for cluster in self.awake)

    def _stop(self, node_id: int) -> None:
        """Let a node give up what it leads, and end; or let it end without a word. Its memory is gone."""
        if not self._can_go(node_id):
            return
        if self._world.rng.random() < 0.5:
            self._world.note("nodes", "node %s is stopped", node_id)
            self._controller.leave(node_id, self._world.clock.now_ms)
        else:
            self._world.note("nodes", "node %s dies", node_id)
            self.clusters[node_id].housekeeping.stop()
            self._controller.expire(node_id, self._world.clock.now_ms)
        self._stopped.add(node_id)
        self._process.break_off_all(node_id)
        for tell in list(self._asked[node_id].values()):
            self._later(self._world.rng.randint(1, 5), tell)
        self._later(self._world.rng.randint(20, 900), lambda: self._start(node_id))

    def _start(self, node_id: int) -> None:
        self._world.note("nodes", "node %s starts", node_id)
        now_ms = self._world.clock.now_ms
        cluster = self._process.make_cluster(self._controller, node_id)
        cluster.peers = SimulatedPeers(self, node_id)
        self.clusters[node_id], self._by_id[node_id] = cluster, Node(node_id, cluster)
        self._stopped.discard(node_id)
        self._controller.rejoin(cluster, now_ms)
        cluster.begin_timers(now_ms)

    def _resume(self, node_id: int) -> None:
        self._world.note("nodes", "node %s goes on", node_id)
        self._controller.rejoin(self.clusters[node_id], self._world.clock.now_ms)
        for work in self._held.pop(node_id):
            work()
