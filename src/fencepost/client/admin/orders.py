"""Orders: end a transaction from outside, and stop, start, pause or resume the nodes of a Fencepost broker.

A transaction ends from outside in two ways: fence its producer, or write an abort marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost.client.admin.answers import DEADLINE_S, NamedPartition, Producer
from fencepost.client.client import TRANSACTION, KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError
from fencepost.protocol import errors
from fencepost.protocol.messages import InitProducerIdRequest, OrderNodesRequest, WriteTxnMarkersRequest

FENCE_DEADLINE_S = 30.0
FALLBACK_TIMEOUT_MS = 1000
# The order registers the id with a timeout that is lower by this, which no producer does. The log of transactions keeps
# the timeout, so that the order can be told from the registration of a producer, on any Kafka.
FENCED_BY_ORDER_MS = 1


def fence(client: KafkaClient, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
    """Take a transactional id over, as a new producer would: abort its open transaction and fence its producer.

    `timeout_ms` is the timeout of the id now. Returns the new producer id and epoch. Call it only for an id that
    exists, because InitProducerId creates others.
    """

    def init(timeout_ms: int) -> Any:
        return client.ask_coordinator(
            transactional_id,
            TRANSACTION,
            InitProducerIdRequest(transactional_id, timeout_ms, -1, -1),
            lambda r: int(r.error_code),
            at_most=5,
            # The answer while the coordinator writes the markers of the abort.
            retry_also=frozenset({errors.CONCURRENT_TRANSACTIONS}),
            deadline_s=FENCE_DEADLINE_S,
        )

    response = init(max(timeout_ms - FENCED_BY_ORDER_MS, 1))
    if response.error_code == errors.INVALID_TRANSACTION_TIMEOUT:
        # transaction.max.timeout.ms was lowered after the producer registered. The next producer sets its own timeout.
        response = init(FALLBACK_TIMEOUT_MS)
    if response.error_code:
        raise BrokerError(response.error_code, f"InitProducerId for `{transactional_id}`")
    return response.producer_id, response.producer_epoch


def write_abort_marker(client: KafkaClient, where: NamedPartition, producer: Producer) -> None:
    """End a hanging transaction of one producer on one partition, without its coordinator."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(where.topic, [where.partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )

    def attempt() -> None:
        response = client.send(client.leader(*where), WriteTxnMarkersRequest([marker]))
        code = response.markers[0].topics[0].partitions[0].error_code
        if code:
            client.topic(where.topic, fresh=True)
            raise BrokerError(code, f"the abort marker for producer {producer.producer_id} on {where}")

    retry(attempt, DEADLINE_S)


class OrderDeclined(ClientError):
    """The broker cannot carry out the order. The message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    node_id: int
    address: str
    state: str  # up, paused, stopped
    leaders: int  # Partitions of topics that it leads.
    coordinators: int  # Partitions of `__transaction_state` and `__consumer_offsets` that it leads.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """The document of `fencepost cluster`."""

    nodes: tuple[NodeRow, ...]


def order_nodes(
    client: KafkaClient, order: str, node_id: int = -1, topic: str = "", partition: int = -1, transactional_id: str = ""
) -> NodeList:
    """Have any node that is up carry out the order; return all nodes. Raises OrderDeclined, Unsupported."""
    request = OrderNodesRequest(order, node_id, topic, partition, transactional_id)
    response = retry(lambda: client.send(client.any_broker(), request), DEADLINE_S)
    if response.error_code:
        raise OrderDeclined(response.error_message or f"error {response.error_code}")
    return NodeList(
        nodes=tuple(
            NodeRow(
                node_id=node.node_id,
                address=f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}",
                state=node.state,
                leaders=node.leaders,
                coordinators=node.coordinators,
            )
            for node in response.nodes
        )
    )
