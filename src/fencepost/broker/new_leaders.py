"""The new leader in the answer to a client that asked another node (KIP-951): the client need not ask for metadata.

Produce and Fetch encode their answers themselves, so this gives the bytes of their tagged fields.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from fencepost.broker.leaders import NO_LEADER
from fencepost.protocol.schema import write_uvarint

if TYPE_CHECKING:
    from fencepost.broker.controller import BrokerAddress
    from fencepost.broker.node import Context
    from fencepost.broker.topics import Topic

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
