"""OffsetDelete (key 47), v0: single offsets of a group, unless its members read the topic."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from fencepost.protocol.topic_partition import TopicPartition

TopicResult = OffsetDeleteResponse.OffsetDeleteResponseTopic
PartitionResult = OffsetDeleteResponse.OffsetDeleteResponsePartition


def handle(ctx: Context, req: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not ctx.may(Operation.DELETE, ResourceType.GROUP, req.group_id):
        return OffsetDeleteResponse(errors.GROUP_AUTHORIZATION_FAILED)
    if not req.group_id:
        return OffsetDeleteResponse(errors.INVALID_GROUP_ID)
    asked = [(topic.name, p.partition_index) for topic in req.topics for p in topic.partitions]
    denied = {
        name
        for name in dict.fromkeys(topic.name for topic in req.topics)
        if not ctx.may(Operation.READ, ResourceType.TOPIC, name)
    }
    known = [where for where in dict.fromkeys(asked) if where[0] not in denied and ctx.cluster.has_partition(*where)]
    deletion = ctx.cluster.groups.delete_offsets(req.group_id, known, ctx.now_ms)
    if deletion.error_code:
        return OffsetDeleteResponse(deletion.error_code)
    codes: dict[TopicPartition, int] = dict.fromkeys(asked, errors.UNKNOWN_TOPIC_OR_PARTITION)
    codes.update({where: errors.TOPIC_AUTHORIZATION_FAILED for where in asked if where[0] in denied})
    codes.update(zip(known, deletion.partition_errors, strict=True))
    return OffsetDeleteResponse(
        topics=[
            TopicResult(
                topic.name,
                [PartitionResult(p.partition_index, codes[topic.name, p.partition_index]) for p in topic.partitions],
            )
            for topic in req.topics
        ]
    )
