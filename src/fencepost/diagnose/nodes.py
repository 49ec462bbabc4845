"""The document of `fencepost cluster`: the nodes of a Fencepost broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.client.admin.nodes import OrderedNode


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    node_id: int
    address: str
    state: str  # up, paused, stopped
    leaders: int  # Partitions of topics that it leads.
    coordinators: int  # Partitions of `__transaction_state` and `__consumer_offsets` that it leads.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    nodes: tuple[NodeRow, ...]


def node_list(nodes: Iterable[OrderedNode]) -> NodeList:
    return NodeList(
        nodes=tuple(
            NodeRow(
                node_id=node.node_id,
                address=f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}",
                state=node.state,
                leaders=node.leaders,
                coordinators=node.coordinators,
            )
            for node in nodes
        )
    )
