"""OffsetCommit (key 8), v2-10: keep a group's offsets. v6 leader epochs; v7 static members; v10 topic ids."""

from __future__ import annotations

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit
from fencepost.protocol import errors
from fencepost.protocol.messages import OffsetCommitRequest, OffsetCommitResponse

TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionResponse = OffsetCommitResponse.OffsetCommitResponsePartition


def handle(ctx: Context, req: OffsetCommitRequest) -> OffsetCommitResponse:
    cluster = ctx.cluster
    is_group_denied = not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id)
    responses: list[TopicResponse] = []
    asked: list[OffsetToCommit] = []
    slots: list[PartitionResponse] = []
    for topic in req.topics:
        found = cluster.topics_by_id.get(topic.topic_id) if ctx.version >= 10 else cluster.topics.get(topic.name)
        is_unknown_id = ctx.version >= 10 and found is None
        name = found.name if found else topic.name
        is_topic_denied = (
            not is_group_denied and not is_unknown_id and not ctx.may(Operation.READ, ResourceType.TOPIC, name)
        )
        partitions = []
        for p in topic.partitions:
            slot = PartitionResponse(p.partition_index)
            partitions.append(slot)
            if is_group_denied:
                slot.error_code = errors.GROUP_AUTHORIZATION_FAILED
            elif is_topic_denied:
                slot.error_code = errors.TOPIC_AUTHORIZATION_FAILED
            elif found is None:
                slot.error_code = errors.UNKNOWN_TOPIC_ID if ctx.version >= 10 else errors.UNKNOWN_TOPIC_OR_PARTITION
            elif not 0 <= p.partition_index < found.partition_count:
                slot.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
            else:
                slots.append(slot)
                asked.append(
                    OffsetToCommit(
                        found.name,
                        p.partition_index,
                        p.committed_offset,
                        p.committed_leader_epoch,
                        p.committed_metadata,
                        topic_id=found.topic_id,
                    )
                )
        responses.append(TopicResponse(topic.name, topic.topic_id, partitions))
    if asked or (not req.topics and not is_group_denied):
        try:
            decision = cluster.groups.commit_offsets(
                req.group_id,
                Committer(req.generation_id_or_member_epoch, req.member_id, req.group_instance_id),
                asked,
                ctx.version,
                req.retention_time_ms,
                ctx.now_ms,
            )
        except NotCoordinator:
            decision = CommitDecision(errors.NOT_COORDINATOR)
        for i, slot in enumerate(slots):
            slot.error_code = decision.error_code or decision.partition_errors[i]
    return OffsetCommitResponse(topics=responses)
