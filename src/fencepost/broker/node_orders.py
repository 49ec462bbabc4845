"""Orders about nodes, and what they answer; the shell carries them out (`server/node_orders.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

DESCRIBE = "describe"  # The order that changes nothing.


class NodeOrder(NamedTuple):
    order: str  # describe, stop, start, pause, resume, move-leader, move-coordinator
    node_id: int = -1
    topic: str = ""
    partition: int = -1
    transactional_id: str = ""


class NodeDescription(NamedTuple):
    node_id: int
    host: str
    port: int
    state: str  # up, paused, stopped
    leaders: int  # Partitions of topics that it leads.
    coordinators: int  # Partitions of internal topics that it leads.


# Receives the reason why the order cannot be carried out, or None, and all nodes.
OrderDone = Callable[[str | None, list[NodeDescription]], None]
CarryOut = Callable[[NodeOrder, OrderDone], None]


def take_no_orders(_order: NodeOrder, then: OrderDone) -> None:
    """Without a shell nothing carries out orders."""
    then("this broker takes no orders about nodes", [])
