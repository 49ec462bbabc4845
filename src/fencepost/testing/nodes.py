"""The nodes of a `Broker` with `brokers=N`: `broker.nodes`.

    with Broker(brokers=3) as broker:
        broker.nodes.stop(2)                            # Others lead its partitions when this returns.
        broker.nodes.move_coordinator("orders-sink", 3)

Nodes are named by their ids: 1, 2, 3, ... `fencepost cluster` gives the same orders to any running broker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.testing.faults import Order, OrderRefused


class NodeInfo(NamedTuple):
    node_id: int
    host: str
    port: int
    state: str  # up, paused, stopped
    leaders: int  # Partitions of topics that it leads.
    coordinators: int  # Partitions of internal topics that it leads.


class Nodes:
    """Every order returns when it is carried out. Raises OrderRefused, with the reason."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def describe(self) -> list[NodeInfo]:
        """All nodes, also those that are not up."""
        return self._give("describe")

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly: others lead its partitions, and its port is closed."""
        self._give("stop", node_id=node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was stopped, on the same port. It leads nothing until it is given something to lead."""
        self._give("start", node_id=node_id)

    def pause(self, node_id: int) -> None:
        """Let a node do nothing, as a process that is suspended; others lead its partitions, and it does not know."""
        self._give("pause", node_id=node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on. It answers what clients have sent meanwhile."""
        self._give("resume", node_id=node_id)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Have a node lead a partition."""
        self._give("move-leader", topic=topic, partition=partition, node_id=node_id)

    def move_coordinator(self, transactional_id: str, node_id: int) -> None:
        """Have a node coordinate a transactional id, and all others of its partition of `__transaction_state`."""
        self._give("move-coordinator", transactional_id=transactional_id, node_id=node_id)

    def unplug(self) -> None:
        """Cut the connections between the nodes, until `plug`. Clients still reach each of them."""
        self._order("unplug_nodes")

    def plug(self) -> None:
        """Let the nodes connect to one another again."""
        self._order("plug_nodes")

    def _give(self, order: str, **given: Any) -> list[NodeInfo]:
        result = self._order("order_nodes", node_order={"order": order, **given})
        if result["refusal"] is not None:
            raise OrderRefused(result["refusal"])
        return [NodeInfo(*node) for node in result["nodes"]]
