"""CreatePartitions (key 37), v0-3: add partitions to topics, up to a given number."""

from __future__ import annotations

from fencepost.broker.metadata import MetadataDraft
from fencepost.broker.node import Context
from fencepost.broker.slices import WORK_A_SLICE, Sliced, in_saves
from fencepost.broker.topics import INTERNAL_TOPICS, MAX_PARTITIONS_PER_TOPIC, TopicRefused, check_room
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse

Wanted = CreatePartitionsRequest.CreatePartitionsTopic
Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def handle(ctx: Context, req: CreatePartitionsRequest) -> Sliced[CreatePartitionsResponse]:
    def more_partitions(wanted: Wanted) -> int:
        topic = ctx.cluster.topics.get(wanted.name)
        return 0 if topic is None else wanted.count - topic.partition_count

    results: list[Result] = []
    for part in in_saves(req.topics, more_partitions):
        if results:
            yield WORK_A_SLICE
        results += _grow_all(ctx, part, req.validate_only)
    return CreatePartitionsResponse(results=results)


def _grow_all(ctx: Context, part: list[Wanted], validate_only: bool) -> list[Result]:
    draft = ctx.cluster.draft()
    results = [
        _grow(draft, wanted)
        if ctx.may(Operation.ALTER, ResourceType.TOPIC, wanted.name)
        else Result(wanted.name, errors.TOPIC_AUTHORIZATION_FAILED)
        for wanted in part
    ]
    try:
        if not validate_only:
            ctx.cluster.commit(draft, ctx.now_ms)
    except StorageFailed as e:
        results = [r if r.error_code else Result(r.name, errors.KAFKA_STORAGE_ERROR, str(e)) for r in results]
    return results


def _grow(draft: MetadataDraft, wanted: Wanted) -> Result:
    topic = draft.topics.get(wanted.name)
    if topic is None:
        return Result(wanted.name, errors.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic")
    have = topic.partition_count
    if topic.name in INTERNAL_TOPICS:
        return Result(
            wanted.name,
            errors.INVALID_REQUEST,
            f"{wanted.name} cannot get more partitions: their number decides which partition has a key",
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
            f"the request adds {wanted.count - have} partitions but assigns {len(wanted.assignments)}",
        )
    try:
        check_room(draft, wanted.count - have)
    except TopicRefused as e:
        return Result(wanted.name, e.code, str(e))
    draft.put(topic._replace(partition_count=wanted.count))
    return Result(wanted.name)
