"""OffsetForLeaderEpoch (key 23), v2-4: the end offset of a leader epoch, for clients to detect a truncated log."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

Wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(ctx: Context, req: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    sees_all = ctx.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_filter=True)
    denied = {
        topic.topic
        for topic in req.topics
        if not sees_all and not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
    }
    return OffsetForLeaderEpochResponse(
        topics=[
            TopicResult(
                topic.topic,
                [
                    EpochEndOffset(errors.TOPIC_AUTHORIZATION_FAILED, p.partition)
                    if topic.topic in denied
                    else _find(ctx, topic.topic, p)
                    for p in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


def _find(ctx: Context, topic: str, wanted: Wanted) -> EpochEndOffset:
    partition = ctx.cluster.partition(topic, wanted.partition)
    if partition is None:
        return EpochEndOffset(ctx.cluster.why_not_here(topic, wanted.partition), wanted.partition)
    error = partition.leader_epochs.check(wanted.current_leader_epoch)
    if error:
        return EpochEndOffset(error, wanted.partition)
    epoch, end_offset = partition.leader_epochs.end_of(wanted.leader_epoch, partition.log.end_offset)
    return EpochEndOffset(errors.NONE, wanted.partition, epoch, end_offset)
