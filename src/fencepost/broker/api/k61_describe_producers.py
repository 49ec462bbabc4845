"""DescribeProducers (key 61), v0: the active producers of partitions, with their open transactions."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeProducersRequest, DescribeProducersResponse

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = DescribeProducersResponse.PartitionResponse
ProducerState = DescribeProducersResponse.ProducerState


def handle(ctx: Context, req: DescribeProducersRequest) -> DescribeProducersResponse:
    # Differs: Fencepost describes a partition once, however often a DescribeProducers names it.
    wanted: dict[str, dict[int, None]] = {}
    for topic in req.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    denied = {name for name in wanted if not ctx.may(Operation.READ, ResourceType.TOPIC, name)}
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name,
                [
                    PartitionResponse(index, errors.TOPIC_AUTHORIZATION_FAILED)
                    if name in denied
                    else _describe(ctx, name, index)
                    for index in indexes
                ],
            )
            for name, indexes in wanted.items()
        ]
    )


def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    partition = ctx.cluster.partition(topic, index)
    if partition is None:
        # Differs: in Kafka every replica describes its producers. In Fencepost only the leader does.
        return PartitionResponse(index, ctx.cluster.why_not_here(topic, index))
    return PartitionResponse(index, active_producers=[ProducerState(*p) for p in partition.describe_producers()])
