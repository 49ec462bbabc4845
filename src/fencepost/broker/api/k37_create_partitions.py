"""CreatePartitions (key 37), v0-3: let topics grow to a number of partitions."""

from __future__ import annotations

from fencepost.broker.cluster import MAX_PARTITIONS_PER_TOPIC, TopicRefused
from fencepost.broker.node import Context
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse

Wanted = CreatePartitionsRequest.CreatePartitionsTopic
Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def handle(ctx: Context, req: CreatePartitionsRequest) -> CreatePartitionsResponse:
    results: list[Result] = []
    try:
        with ctx.cluster.one_save():
            results += (_grow(ctx, wanted, req.validate_only) for wanted in req.topics)
    except StorageFailed as e:
        results = [r if r.error_code else Result(r.name, errors.KAFKA_STORAGE_ERROR, str(e)) for r in results]
    return CreatePartitionsResponse(results=results)


def _grow(ctx: Context, wanted: Wanted, validate_only: bool) -> Result:
    topic = ctx.cluster.topics.get(wanted.name)
    if topic is None:
        return Result(wanted.name, errors.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic")
    have = len(topic.partitions)
    if topic.is_internal:
        return Result(
            wanted.name,
            errors.INVALID_REQUEST,
            f"the partitions of {wanted.name} are fixed: keys are found by their number",
        )
    if not have < wanted.count <= MAX_PARTITIONS_PER_TOPIC:
        return Result(
            wanted.name,
            errors.INVALID_PARTITIONS,
            f"the topic has {have} partitions and can grow to {MAX_PARTITIONS_PER_TOPIC}, not to {wanted.count}",
        )
    if wanted.assignments is not None and len(wanted.assignments) != wanted.count - have:
        return Result(
            wanted.name,
            errors.INVALID_REPLICA_ASSIGNMENT,
            f"{wanted.count - have} partitions are new, {len(wanted.assignments)} are assigned",
        )
    try:
        ctx.cluster.check_room(wanted.count - have)
    except TopicRefused as e:
        return Result(wanted.name, e.code, str(e))
    if not validate_only:
        ctx.cluster.add_partitions(topic, wanted.count, ctx.now_ms)
    return Result(wanted.name)
