"""How a node sends requests to the other nodes of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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
