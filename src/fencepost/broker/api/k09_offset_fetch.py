"""OffsetFetch (key 9), v1-10: a group's committed offsets.

v2 null asks for all; v7 require_stable: an offset with a transaction open on it is UNSTABLE_OFFSET_COMMIT; v8 several
groups; v9 member id and epoch; v10 topic ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.commits import offset_fetch_error
from fencepost.machines.group.offsets import FetchedOffset
from fencepost.protocol import errors
from fencepost.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from fencepost.protocol.schema import NO_UUID

Topic = OffsetFetchResponse.OffsetFetchResponseTopic
Partition = OffsetFetchResponse.OffsetFetchResponsePartition
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
GroupTopic = OffsetFetchResponse.OffsetFetchResponseTopics
GroupPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
Found = list[tuple[str, bytes, list[tuple[int, FetchedOffset]]]]


def handle(ctx: Context, req: OffsetFetchRequest) -> OffsetFetchResponse:
    if ctx.version >= 8:
        # Differs: Fencepost answers once for a group, however often an OffsetFetch names it with all its topics.
        named = [(group.group_id if group.topics is None else i, group) for i, group in enumerate(req.groups)]
        distinct = dict(named).values()
        return OffsetFetchResponse(groups=[_fetch_group(ctx, group, req.require_stable) for group in distinct])
    wanted = None if req.topics is None else [(t.name, NO_UUID, t.partition_indexes) for t in req.topics]
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, req.group_id):
        error = errors.GROUP_AUTHORIZATION_FAILED
        # Kafka: v1 has no error for the whole response, so each partition gets it; later versions leave out the topics.
        refused = [(name, [(index, FetchedOffset(error)) for index in indexes]) for name, _, indexes in wanted or ()]
        return OffsetFetchResponse(
            topics=[
                Topic(name, [Partition(index, *_fields(offset)) for index, offset in rows])
                for name, rows in (refused if ctx.version < 2 else ())
            ],
            error_code=error,
        )
    try:
        found = _fetch(ctx, req.group_id, wanted, req.require_stable)
    except NotCoordinator:
        if ctx.version >= 2:
            raise
        # v1 has no error for the whole request.
        elsewhere = FetchedOffset(errors.NOT_COORDINATOR)
        found = [(name, topic_id, [(i, elsewhere) for i in indexes]) for name, topic_id, indexes in wanted or ()]
    return OffsetFetchResponse(
        topics=[Topic(name, [Partition(index, *_fields(offset)) for index, offset in rows]) for name, _, rows in found]
    )


def _fetch_group(
    ctx: Context, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
) -> GroupResponse:
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        return GroupResponse(group.group_id, error_code=errors.GROUP_AUTHORIZATION_FAILED)
    try:
        shard = ctx.cluster.groups.shard_of(group.group_id, ctx.now_ms)
    except NotCoordinator:
        return GroupResponse(group.group_id, error_code=errors.NOT_COORDINATOR)
    error = offset_fetch_error(shard, group.group_id, group.member_id, group.member_epoch)
    if error:
        return GroupResponse(group.group_id, error_code=error)
    wanted = None
    if group.topics is not None:
        by_id = ctx.cluster.topics_by_id
        wanted = []
        for t in group.topics:
            name = t.name
            if ctx.version >= 10:
                topic = by_id.get(t.topic_id)
                name = topic.name if topic else ""
            wanted.append((name, t.topic_id, t.partition_indexes))
    topics = []
    for name, topic_id, rows in _fetch(ctx, group.group_id, wanted, require_stable):
        topics.append(GroupTopic(name, topic_id, [GroupPartition(index, *_fields(offset)) for index, offset in rows]))
    return GroupResponse(group.group_id, topics)


def _fetch(
    ctx: Context, group_id: str, wanted: list[tuple[str, bytes, Sequence[int]]] | None, require_stable: bool
) -> Found:
    offsets = ctx.cluster.groups.shard_of(group_id, ctx.now_ms).offsets
    if wanted is None:
        topics = ctx.cluster.topics
        return [
            (name, topics[name].topic_id if name in topics else NO_UUID, rows)
            for name, rows in offsets.fetch_all(group_id, require_stable).items()
            if ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name, is_filter=True)
        ]
    found: Found = []
    for name, topic_id, indexes in wanted:
        if not name:
            unknown = FetchedOffset(errors.UNKNOWN_TOPIC_ID)
            found.append((name, topic_id, [(index, unknown) for index in indexes]))
        elif not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            denied = FetchedOffset(errors.TOPIC_AUTHORIZATION_FAILED)
            found.append((name, topic_id, [(index, denied) for index in indexes]))
        else:
            rows = [(index, offsets.fetch(group_id, name, index, require_stable, topic_id)) for index in indexes]
            found.append((name, topic_id, rows))
    return found


def _fields(offset: FetchedOffset) -> tuple[int, int, str, int]:
    return offset.offset, offset.leader_epoch, offset.metadata, offset.error_code
