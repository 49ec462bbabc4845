"""Orders about the nodes of a Fencepost broker that has several: stop, start, pause, resume, move a leader."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.client.admin.asking import DEADLINE_S
from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import ClientError
from fencepost.protocol.messages import OrderNodesRequest


class OrderDeclined(ClientError):
    """The broker cannot carry out the order. The message says why, and what to do."""


class OrderedNode(NamedTuple):
    node_id: int
    host: str
    port: int
    state: str  # up, paused, stopped
    leaders: int  # Partitions of topics that it leads.
    coordinators: int  # Partitions of internal topics that it leads.


def order_nodes(
    client: KafkaClient,
    order: str,
    node_id: int = -1,
    topic: str = "",
    partition: int = -1,
    transactional_id: str = "",
) -> list[OrderedNode]:
    """Have any node that is up carry out the order; return all nodes. Raises OrderDeclined, Unsupported."""
    request = OrderNodesRequest(order, node_id, topic, partition, transactional_id)
    response = retry(lambda: client.send(client.any_broker(), request), DEADLINE_S)
    if response.error_code:
        raise OrderDeclined(response.error_message or f"error {response.error_code}")
    return [OrderedNode(n.node_id, n.host, n.port, n.state, n.leaders, n.coordinators) for n in response.nodes]
