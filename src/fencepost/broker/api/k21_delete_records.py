"""DeleteRecords (key 21), v0-2: delete the records of partitions below an offset; -1 deletes all records."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.slices import WRITTEN_FILE, Sliced
from fencepost.broker.topics import cleanup_policy
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.partition.deletion import delete_records
from fencepost.protocol import errors
from fencepost.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = DeleteRecordsResponse.DeleteRecordsPartitionResult
NO_OFFSET = -1


def handle(ctx: Context, req: DeleteRecordsRequest) -> Sliced[DeleteRecordsResponse]:
    topics = []
    for wanted in req.topics:
        if ctx.may(Operation.DELETE, ResourceType.TOPIC, wanted.name):
            results = []
            for p in wanted.partitions:
                results.append(_delete(ctx, wanted.name, p.partition_index, p.offset))
                yield WRITTEN_FILE
        else:
            error = errors.TOPIC_AUTHORIZATION_FAILED
            results = [PartitionResult(p.partition_index, NO_OFFSET, error) for p in wanted.partitions]
        topics.append(TopicResult(wanted.name, results))
    return DeleteRecordsResponse(topics=topics)


def _delete(ctx: Context, name: str, index: int, offset: int) -> PartitionResult:
    topic = ctx.cluster.topics.get(name)
    partition = ctx.cluster.partition(name, index)
    if topic is None or partition is None:
        return PartitionResult(index, NO_OFFSET, ctx.cluster.why_not_here(name, index))
    if topic.is_internal:
        return PartitionResult(index, NO_OFFSET, errors.INVALID_TOPIC_EXCEPTION)
    if "delete" not in cleanup_policy(ctx.cluster.config, topic.configs):
        return PartitionResult(index, NO_OFFSET, errors.POLICY_VIOLATION)
    error, start_offset = delete_records(partition, offset)
    return PartitionResult(index, start_offset, error)
