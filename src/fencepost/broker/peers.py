"""The other nodes of a cluster: how a node asks them, and orders about nodes, which the shell carries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fencepost.protocol.schema import Message

# Receives the response and the time; None if there was no answer, and then the request may have been carried out.
Answered = Callable[[Any, int], None]


class Peers(Protocol):
    def send(self, node_id: int, request: Message, version: int, then: Answered) -> None:
        """Send the request to another node. `then` is called once, and never before `send` has returned."""
        ...


class Alone:
    """A node without others: it leads everything, so it has nothing to ask."""

    def send(self, node_id: int, request: Message, version: int, then: Answered) -> None:
        raise AssertionError(f"there is no node {node_id} to send {type(request).__name__} to")


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
