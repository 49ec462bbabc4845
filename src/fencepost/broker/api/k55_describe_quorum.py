"""DescribeQuorum (key 55), v0-2: the quorum that keeps the metadata: the first broker alone.

v1 adds timestamps; v2 listeners and directory ids, which do not exist here.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse

# Kafka: the only topic that has a quorum. Here the topic does not exist.
METADATA_TOPIC = "__cluster_metadata"
TopicData = DescribeQuorumResponse.TopicData
PartitionData = DescribeQuorumResponse.PartitionData
ReplicaState = DescribeQuorumResponse.ReplicaState
Node = DescribeQuorumResponse.Node
Listener = DescribeQuorumResponse.Listener


def handle(ctx: Context, req: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeQuorumResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    asked = [(topic.topic_name, p.partition_index) for topic in req.topics for p in topic.partitions]
    first = ctx.address_of(ctx.cluster.brokers[0])
    listener = Listener(ctx.connection.listener_name or "PLAINTEXT", first.host, first.port)
    nodes = [Node(first.node_id, [listener])]
    return DescribeQuorumResponse(
        topics=[TopicData(name, [_describe(ctx, name, index)]) for name, index in asked],
        nodes=nodes if (METADATA_TOPIC, 0) in asked else [],
    )


def _describe(ctx: Context, name: str, index: int) -> PartitionData:
    if (name, index) != (METADATA_TOPIC, 0):
        message = "This server does not host this topic-partition."
        return PartitionData(index, errors.UNKNOWN_TOPIC_OR_PARTITION, message)
    leader = ctx.cluster.brokers[0].node_id
    voter = ReplicaState(
        leader,
        log_end_offset=ctx.cluster.metadata.features_epoch,
        last_fetch_timestamp=ctx.now_ms,
        last_caught_up_timestamp=ctx.now_ms,
    )
    return PartitionData(
        index,
        leader_id=leader,
        leader_epoch=1,
        high_watermark=ctx.cluster.metadata.features_epoch,
        current_voters=[voter],
    )
