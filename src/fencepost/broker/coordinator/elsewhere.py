"""Transactions over nodes: markers for partitions, and questions to coordinators, that are on other nodes.

A coordinator sends WriteTxnMarkers to the leaders of a transaction's partitions. The leader of a partition sends
AddPartitionsToTxn to the coordinator of a transaction, which adds the partition (TV2) or verifies that it was added.
Follows Kafka's TransactionMarkerChannelManager and AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.leaders import NO_LEADER
from fencepost.broker.topics import TXN_TOPIC
from fencepost.machines.txn.records import group_by_topic
from fencepost.machines.txn.states import PREPARE_COMMIT, Txn
from fencepost.protocol import errors
from fencepost.protocol.messages import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from fencepost.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

WRITE_TXN_MARKERS_VERSION = 2
ADD_PARTITIONS_VERSION = 5

Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerTopic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
AddTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
AddTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
# An error code for each partition, and the time.
Errors = Callable[[Mapping[TopicPartition, int], int], None]


def write_markers(
    cluster: Cluster,
    txn: Txn,
    coordinator_epoch: int,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    then: Errors,
) -> None:
    """Have the leaders of `partitions`, which this node does not lead, write the markers of a decided transaction.

    `then` is called once, later, when all of them have answered. A leader that does not answer gives NETWORK_EXCEPTION.
    """
    by_node: dict[int, list[TopicPartition]] = {}
    for topic, index in partitions:
        by_node.setdefault(cluster.leader_of(topic, index).node_id, []).append((topic, index))
    found: dict[TopicPartition, int] = {}
    unanswered = set(by_node)

    def answered(node_id: int, response: Any, now_ms: int) -> None:
        found.update(dict.fromkeys(by_node[node_id], errors.NETWORK_EXCEPTION))
        for result in () if response is None else response.markers:
            found.update({(t.name, p.partition_index): p.error_code for t in result.topics for p in t.partitions})
        unanswered.discard(node_id)
        if not unanswered:
            then(found, now_ms)

    for node_id, there in by_node.items():
        if node_id in (cluster.node_id, NO_LEADER.node_id):
            # The partition is moving, and this node has not heard of it.
            cluster.timers.at(now_ms, partial(answered, node_id, None))
            continue
        marker = Marker(
            txn.producer_id,
            txn.producer_epoch,
            txn.state is PREPARE_COMMIT,
            [MarkerTopic(topic, indexes) for topic, indexes in group_by_topic(there).items()],
            coordinator_epoch,
            txn.client_transaction_version,
        )
        request = WriteTxnMarkersRequest([marker])
        cluster.peers.send(node_id, request, WRITE_TXN_MARKERS_VERSION, partial(answered, node_id))


def add_partitions(
    cluster: Cluster,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    verify_only: bool,
    now_ms: int,
    then: Errors,
) -> None:
    """Ask the coordinator, which is on another node, to add the partitions to the transaction, or to verify them."""
    asked = list(partitions)
    coordinator = cluster.leader_of(TXN_TOPIC, cluster.txns.partition_of(transactional_id, now_ms)).node_id
    if coordinator in (cluster.node_id, NO_LEADER.node_id):
        # It has moved here, and this node has not heard of it.
        cluster.timers.at(now_ms, lambda at_ms: then(dict.fromkeys(asked, errors.NOT_COORDINATOR), at_ms))
        return
    topics = [AddTopic(topic, indexes) for topic, indexes in group_by_topic(asked).items()]
    request = AddPartitionsToTxnRequest(
        transactions=[AddTransaction(transactional_id, producer_id, epoch, verify_only, topics)]
    )

    def answered(response: Any, at_ms: int) -> None:
        found = dict.fromkeys(asked, errors.NETWORK_EXCEPTION if response is None else response.error_code)
        for result in () if response is None else response.results_by_transaction:
            for topic in result.topic_results:
                found.update(
                    {(topic.name, p.partition_index): p.partition_error_code for p in topic.results_by_partition}
                )
        then(found, at_ms)

    cluster.peers.send(coordinator, request, ADD_PARTITIONS_VERSION, answered)
