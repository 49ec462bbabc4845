"""ConsumerGroupDescribe (key 69), v0-1: groups of the consumer protocol: epochs, members, targets (KIP-848).

v1 says for each member which protocol it uses.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.consumer.group import ConsumerGroup, ConsumerMember, Place
from fencepost.machines.group.consumer.heartbeat import preferred_assignor
from fencepost.machines.group.consumer.records import by_topic
from fencepost.protocol import errors
from fencepost.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

CLASSIC, CONSUMER = 0, 1
Group = ConsumerGroupDescribeResponse.DescribedGroup
Member = ConsumerGroupDescribeResponse.Member
Assignment = ConsumerGroupDescribeResponse.Assignment
TopicPartitions = ConsumerGroupDescribeResponse.TopicPartitions


def handle(ctx: Context, req: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    # Differs: Fencepost describes a group once, however often a ConsumerGroupDescribe names it.
    return ConsumerGroupDescribeResponse(groups=[_describe(ctx, req, name) for name in dict.fromkeys(req.group_ids)])


def _describe(ctx: Context, req: ConsumerGroupDescribeRequest, group_id: str) -> Group:
    if not ctx.cluster.metadata.group_version:
        return Group(errors.UNSUPPORTED_VERSION, group_id=group_id)
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return Group(errors.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    group = _find(ctx, group_id)
    topics = {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        if assignment is not None
        for part in assignment.topic_partitions
    }
    if not all(ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, is_filter=True) for topic in topics):
        message = "The group has described topic(s) that the client is not authorized to describe."
        return Group(errors.TOPIC_AUTHORIZATION_FAILED, message, group_id)
    if req.include_authorized_operations and not group.error_code:
        group.authorized_operations = ctx.allowed_operations(ResourceType.GROUP, group_id)
    return group


def _find(ctx: Context, group_id: str) -> Group:
    if not group_id:
        return Group(errors.INVALID_GROUP_ID, group_id=group_id)
    try:
        shard = ctx.cluster.groups.shard_of(group_id, ctx.now_ms)
    except NotCoordinator:
        return Group(errors.NOT_COORDINATOR, None, group_id)
    group = shard.consumer.get(group_id)
    if group is None:
        is_classic = group_id in shard.classic
        message = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
        return Group(errors.GROUP_ID_NOT_FOUND, message, group_id)
    return Group(
        errors.NONE,
        None,
        group_id,
        group.state_name(),
        group.epoch,
        group.target_epoch,
        preferred_assignor(group, ctx.cluster.groups.config),
        [_member(ctx, group, member) for member in group.members.values()],
    )


def _member(ctx: Context, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topic_names),
        member.topic_regex,
        # Partitions that it has yet to give up are still its own.
        _assignment(ctx, (*member.assigned, *member.revoking)),
        _assignment(ctx, group.targets.get(member.member_id, frozenset())),
        CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(ctx: Context, places: Iterable[Place]) -> Assignment:
    topics = ctx.cluster.topics_by_id
    return Assignment(
        [
            TopicPartitions(topic_id, topics[topic_id].name, indexes)
            for topic_id, indexes in by_topic(places).items()
            if topic_id in topics
        ]
    )
