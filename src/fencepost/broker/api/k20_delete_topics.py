"""DeleteTopics (key 20), v1-6: delete topics by name, from v6 on also by id."""

from __future__ import annotations

from fencepost.broker.metadata import MetadataDraft
from fencepost.broker.node import Context
from fencepost.broker.slices import WORK_A_SLICE, Sliced, in_saves
from fencepost.broker.topics import Topic
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from fencepost.protocol.schema import NO_UUID

Wanted = DeleteTopicsRequest.DeleteTopicState
Result = DeleteTopicsResponse.DeletableTopicResult


def handle(ctx: Context, req: DeleteTopicsRequest) -> Sliced[DeleteTopicsResponse]:
    def partitions_of(wanted: Wanted) -> int:
        topic = _find(ctx, wanted)
        return 0 if topic is None else topic.partition_count

    all_wanted = req.topics if ctx.version >= 6 else [Wanted(name) for name in req.topic_names]
    responses: list[Result] = []
    for part in in_saves(all_wanted, partitions_of):
        if responses:
            yield WORK_A_SLICE
        responses += _delete_all(ctx, part)
    return DeleteTopicsResponse(responses=responses)


def _delete_all(ctx: Context, part: list[Wanted]) -> list[Result]:
    draft = ctx.cluster.draft()
    responses = [_delete_one(ctx, draft, wanted) for wanted in part]
    try:
        ctx.cluster.commit(draft, ctx.now_ms)
    except StorageFailed as e:
        responses = [
            r if r.error_code else Result(r.name, r.topic_id, errors.KAFKA_STORAGE_ERROR, str(e)) for r in responses
        ]
    return responses


def _find(ctx: Context, wanted: Wanted) -> Topic | None:
    if wanted.name is None:
        return ctx.cluster.topics_by_id.get(wanted.topic_id)
    return ctx.cluster.topics.get(wanted.name)


def _delete_one(ctx: Context, draft: MetadataDraft, wanted: Wanted) -> Result:
    if wanted.name is not None and wanted.topic_id != NO_UUID:
        message = "give the name or the id of a topic, not both"
        return Result(wanted.name, wanted.topic_id, errors.INVALID_REQUEST, message)
    return _delete(ctx, draft, _find(ctx, wanted), wanted.name, wanted.topic_id)


def _delete(ctx: Context, draft: MetadataDraft, topic: Topic | None, name: str | None, topic_id: bytes) -> Result:
    if (name is not None or topic is not None) and (denied := _denied(ctx, topic, name, topic_id)):
        return denied
    if topic is None or topic.name not in draft.topics:
        error = errors.UNKNOWN_TOPIC_ID if name is None else errors.UNKNOWN_TOPIC_OR_PARTITION
        return Result(name, topic_id, error, "this broker has no such topic")
    if not ctx.cluster.config["delete.topic.enable"]:
        return Result(topic.name, topic.topic_id, errors.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if topic.is_internal:
        return Result(topic.name, topic.topic_id, errors.INVALID_REQUEST, f"{topic.name} is an internal topic")
    draft.delete(topic.name)
    return Result(topic.name, topic.topic_id)


def _denied(ctx: Context, topic: Topic | None, name: str | None, topic_id: bytes) -> Result | None:
    """The refusal of a client that may not delete the topic; it tells nothing about one that the client may not see."""
    if ctx.may(Operation.DELETE, ResourceType.CLUSTER, is_filter=True):
        return None
    asked = topic.name if topic is not None else name
    assert asked is not None
    can_see = ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, asked)
    if can_see and (topic is None or ctx.may(Operation.DELETE, ResourceType.TOPIC, asked)):
        return None
    return Result(asked if can_see else name, topic_id, errors.TOPIC_AUTHORIZATION_FAILED, None)
