"""Which node leads a partition: the rules of the controller."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fencepost.protocol.crc import crc32c


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
