"""AlterPartitionReassignments (key 45), v0-1: refused, unless it names the broker that has the partition already.

v1 adds whether the number of replicas may change.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse

Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition
TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def handle(ctx: Context, req: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER):
        return _denied(req)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=req.allow_replication_factor_change,
        error_message=None,
        responses=[
            TopicResult(
                topic.name,
                [PartitionResult(p.partition_index, *_reassign(ctx, topic.name, p)) for p in topic.partitions],
            )
            for topic in req.topics
        ],
    )


def _denied(req: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    error = errors.CLUSTER_AUTHORIZATION_FAILED
    responses = [
        TopicResult(topic.name, [PartitionResult(p.partition_index, error) for p in topic.partitions])
        for topic in req.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, responses=responses)


def _reassign(ctx: Context, topic: str, wanted: Wanted) -> tuple[int, str | None]:
    if topic not in ctx.cluster.topics:
        return errors.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    index, replicas = wanted.partition_index, wanted.replicas
    if not ctx.cluster.has_partition(topic, index):
        return errors.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
    if replicas is None:
        return errors.NO_REASSIGNMENT_IN_PROGRESS, None
    if not replicas:
        error = "The manual partition assignment includes an empty replica list."
        return errors.INVALID_REPLICA_ASSIGNMENT, error
    nodes = ctx.cluster.controller.replicas_of(topic, index).nodes
    if list(replicas) == nodes:
        return errors.NONE, None
    known = {broker.node_id for broker in ctx.cluster.brokers}
    unknown = next((node_id for node_id in replicas if node_id not in known), None)
    if unknown is not None:
        error = f"The manual partition assignment includes broker {unknown}, but no such broker is registered."
    else:
        # Differs: Kafka moves partitions between brokers. Fencepost refuses: its brokers share one process and one
        # disk, so a move would have no purpose.
        error = f"partition {topic}-{index} stays with brokers {nodes}; the request would move it to {list(replicas)}"
    return errors.INVALID_REPLICA_ASSIGNMENT, error
