"""WriteTxnMarkers (key 27), v1-2: write the markers that end transactions. Sent by brokers and by tools that abort.

v2 names the transaction version, which decides whether a marker must have a newer epoch than the data (KIP-1228).
"""

from __future__ import annotations

from fencepost.broker.coordinator.txn_trace import UNKNOWN_ID, marked
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from fencepost.protocol.transaction_version import TransactionVersion

Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def handle(ctx: Context, req: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    may_write = ctx.may(Operation.ALTER, ResourceType.CLUSTER, is_filter=True) or ctx.may(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    write = _write if may_write else _deny
    return WriteTxnMarkersResponse(
        [
            MarkerResult(
                marker.producer_id,
                [
                    TopicResult(
                        topic.name,
                        [PartitionResult(i, write(ctx, marker, topic.name, i)) for i in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in req.markers
        ]
    )


def _deny(ctx: Context, marker: Marker, topic: str, index: int) -> int:
    return errors.CLUSTER_AUTHORIZATION_FAILED


def _write(ctx: Context, marker: Marker, topic: str, index: int) -> int:
    partition = ctx.cluster.partition(topic, index)
    if partition is None:
        # Differs: Kafka answers UNKNOWN_TOPIC_OR_PARTITION if the broker has no replica of the partition. Fencepost
        # answers NOT_LEADER_OR_FOLLOWER, as Kafka's replicas do. A coordinator tries again after both.
        return ctx.cluster.why_not_here(topic, index)
    error = partition.write_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        ctx.now_ms,
        TransactionVersion.of(marker.transaction_version),
    )
    if ctx.cluster.trace is not None:
        ctx.cluster.trace(
            marked(UNKNOWN_ID, partition, marker.producer_id, marker.producer_epoch, marker.transaction_result, error)
        )
    return error
