"""Which node leads a partition: the rules of the controller, and how an answer names a new leader (KIP-951).

A client that asked another node need not ask for metadata then. Produce and Fetch encode their answers themselves, so
`NewLeaders` gives the bytes of their tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fencepost.protocol.crc import crc32c
from fencepost.protocol.schema import write_uvarint

if TYPE_CHECKING:
    from fencepost.broker.controller import BrokerAddress
    from fencepost.broker.node import Context
    from fencepost.broker.topics import Topic


class Leader(NamedTuple):
    """The node that leads a partition, and the epoch since it does."""

    node_id: int
    epoch: int


NO_LEADER = Leader(-1, -1)  # Kafka: -1 stands for no node.


class Replicas(NamedTuple):
    """The nodes that a partition is said to be on: the leader first, and which of them are up."""

    nodes: list[int]
    in_sync: list[int]
    offline: list[int]


def replicas(leader_id: int, factor: int, nodes: Sequence[int], living: Collection[int]) -> Replicas:
    """The replicas of a partition: its leader, and the nodes after it in turn.

    There is one copy of the bytes, which every node can lead, so a node that is up is in sync.
    """
    ids = sorted(nodes)
    at = ids.index(leader_id) if leader_id in ids else 0
    chosen = [*ids[at:], *ids[:at]][:factor]
    return Replicas(chosen, [n for n in chosen if n in living], [n for n in chosen if n not in living])


def spread(topic: str, index: int, nodes: Sequence[int]) -> int:
    """The node for a partition: the partitions of a topic take turns, and not every topic begins with the same node."""
    if len(nodes) == 1:
        return nodes[0]
    return sorted(nodes)[(crc32c(topic.encode()) + index) % len(nodes)]


NO_TAGS = b"\0"
ENDPOINTS_TAG = 0
# The leader and its epoch, and no tags.
_LEADER = struct.Struct(">iix")
_INT32 = struct.Struct(">i")


class NewLeaders:
    """The leaders that one answer names."""

    __slots__ = ("_address_of", "_brokers", "cluster")

    def __init__(self, ctx: Context) -> None:
        self.cluster = ctx.cluster
        self._address_of = ctx.address_of
        self._brokers: dict[int, BrokerAddress] = {}

    def name(self, tag: int, topic: Topic | None, index: int) -> bytes:
        """The tagged fields of a partition's result: its leader, if it has one."""
        leader = NO_LEADER if topic is None else self.cluster.leader_of(topic.name, index)
        if leader == NO_LEADER:
            return NO_TAGS
        for broker in self.cluster.brokers:
            if broker.node_id == leader.node_id:
                self._brokers[broker.node_id] = self._address_of(broker)
        return _tagged(tag, _LEADER.pack(*leader))

    def endpoints(self) -> bytes:
        """The tagged fields of the answer: the addresses of the leaders that it names."""
        if not self._brokers:
            return NO_TAGS
        nodes = [_endpoint(broker) for broker in self._brokers.values()]
        return _tagged(ENDPOINTS_TAG, write_uvarint(len(nodes) + 1) + b"".join(nodes))


def _tagged(tag: int, body: bytes) -> bytes:
    """One tagged field, and no other."""
    return b"\1" + write_uvarint(tag) + write_uvarint(len(body)) + body


def _endpoint(broker: BrokerAddress) -> bytes:
    """Node id, host, port, no rack and no tags."""
    host = broker.host.encode()
    return _INT32.pack(broker.node_id) + write_uvarint(len(host) + 1) + host + _INT32.pack(broker.port) + b"\0\0"
