"""Which node leads a partition: the rules of the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.protocol.crc import crc32c


class Leader(NamedTuple):
    """The node that leads a partition, and the epoch since it does."""

    node_id: int
    epoch: int


NO_LEADER = Leader(-1, -1)  # Kafka: -1 stands for no node.


def spread(topic: str, index: int, nodes: Sequence[int]) -> int:
    """The node for a partition: the partitions of a topic take turns, and not every topic begins with the same node."""
    if len(nodes) == 1:
        return nodes[0]
    return sorted(nodes)[(crc32c(topic.encode()) + index) % len(nodes)]
