"""ListOffsets (key 2), v1-11: the earliest offset, the latest, or the first one at or after a timestamp.

v2 isolation level: for read_committed the latest offset is the last stable one. v4 leader epochs. v7 max timestamp.
"""

from __future__ import annotations

from collections import Counter

from fencepost.broker.node import Context
from fencepost.broker.slices import READ_BATCH, Sliced
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.partition.list_offsets import offset_for
from fencepost.protocol import errors
from fencepost.protocol.messages import ListOffsetsRequest, ListOffsetsResponse

READ_COMMITTED = 1
Wanted = ListOffsetsRequest.ListOffsetsPartition
TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse


def handle(ctx: Context, req: ListOffsetsRequest) -> Sliced[ListOffsetsResponse]:
    read_committed = req.isolation_level == READ_COMMITTED
    times = Counter((topic.name, p.partition_index) for topic in req.topics for p in topic.partitions)
    responses = []
    for topic in req.topics:
        found: dict[int, PartitionResponse] = {}
        is_denied = not ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for p in topic.partitions:
            if is_denied:
                found[p.partition_index] = PartitionResponse(p.partition_index, errors.TOPIC_AUTHORIZATION_FAILED)
            # Kafka: a request may name a partition once only.
            elif times[topic.name, p.partition_index] > 1:
                found[p.partition_index] = PartitionResponse(p.partition_index, errors.INVALID_REQUEST)
            else:
                found[p.partition_index] = _find(ctx, topic.name, p, read_committed)
                yield READ_BATCH if p.timestamp >= 0 else 1
        responses.append(TopicResponse(topic.name, list(found.values())))
    return ListOffsetsResponse(topics=responses)


def _oldest_wish(version: int) -> int:
    """The lowest of the special timestamps (-1 latest, -2 earliest, -3 newest, ...) that a version knows."""
    if version < 7:
        return -2
    return {7: -3, 8: -4, 9: -5, 10: -5}.get(version, -6)


def _find(ctx: Context, topic: str, wanted: Wanted, read_committed: bool) -> PartitionResponse:
    if wanted.timestamp < _oldest_wish(ctx.version):
        return PartitionResponse(wanted.partition_index, errors.UNSUPPORTED_VERSION)
    partition = ctx.cluster.partition(topic, wanted.partition_index)
    if partition is None:
        return PartitionResponse(wanted.partition_index, ctx.cluster.why_not_here(topic, wanted.partition_index))
    error = partition.leader_epochs.check(wanted.current_leader_epoch)
    if error:
        return PartitionResponse(wanted.partition_index, error)
    try:
        found = offset_for(partition, wanted.timestamp, read_committed)
    except StorageFailed as e:
        return PartitionResponse(wanted.partition_index, ctx.cluster.damage_reports.code_of(partition, e))
    return PartitionResponse(wanted.partition_index, errors.NONE, found.timestamp, found.offset, found.leader_epoch)
