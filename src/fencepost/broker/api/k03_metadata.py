"""Metadata (key 3), v0-13: brokers, topics, and the leader of each partition; may create missing topics.

v1 null asks for all topics, an empty list for none (v0: empty asks for all); v4 the client says whether to create
missing topics; v10 topic ids; v13 a top-level error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepost.broker.node import Context
from fencepost.broker.slices import WORK_A_SLICE, Sliced, in_saves
from fencepost.broker.topics import (
    INTERNAL_TOPICS,
    MAX_PARTITIONS_PER_REQUEST,
    Topic,
    TopicNames,
    TopicRefused,
    check_topic_name,
)
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.schema import NO_UUID

NOT_ASKED = -(2**31)
Wanted = MetadataRequest.MetadataRequestTopic
TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = MetadataResponse.MetadataResponsePartition
BrokerResponse = MetadataResponse.MetadataResponseBroker


def handle(ctx: Context, req: MetadataRequest) -> Sliced[MetadataResponse]:
    cluster = ctx.cluster
    denied: list[TopicResponse] = []
    if req.topics is None or (ctx.version == 0 and not req.topics):
        topics = []
        for known in list(cluster.topics.values()):
            if ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, known.name, is_filter=True):
                topics.append(_describe(ctx, known))
            yield known.partition_count
    else:
        # Kafka: describes a topic once, however often the request names it.
        distinct = {(wanted.name, wanted.topic_id): wanted for wanted in req.topics}.values()
        visible = []
        for wanted in distinct:
            if _may_describe(ctx, wanted):
                visible.append(wanted)
            else:
                denied.append(_denied(ctx, wanted))
        missing = errors.UNKNOWN_TOPIC_OR_PARTITION
        refused: dict[str, int] = {}
        if req.allow_auto_topic_creation:
            try:
                refused = yield from _create_missing(ctx, [wanted.name for wanted in visible])
            except StorageFailed:
                missing = errors.LEADER_NOT_AVAILABLE
        topics = []
        for wanted in visible:
            topics.append(_find(ctx, wanted, refused, missing))
            yield 1 + len(topics[-1].partitions)
    if req.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = ctx.allowed_operations(ResourceType.TOPIC, topic.name or "")
    return MetadataResponse(
        brokers=[BrokerResponse(b.node_id, b.host, b.port) for b in map(ctx.address_of, cluster.brokers)],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.brokers[0].node_id,
        topics=topics + denied,
        cluster_authorized_operations=_cluster_operations(ctx, req),
    )


def _cluster_operations(ctx: Context, req: MetadataRequest) -> int:
    if not req.include_cluster_authorized_operations:
        return NOT_ASKED
    return ctx.allowed_operations(ResourceType.CLUSTER) if ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER) else 0


def _may_describe(ctx: Context, wanted: Wanted) -> bool:
    name = wanted.name
    if name is None:
        topic = ctx.cluster.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return True  # The answer is that the id is unknown.
        name = topic.name
    return ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _denied(ctx: Context, wanted: Wanted) -> TopicResponse:
    """Tells only what the client knows already, and not whether the topic exists."""
    name = "" if wanted.name is None and ctx.version < 12 else wanted.name
    return TopicResponse(errors.TOPIC_AUTHORIZATION_FAILED, name, wanted.topic_id)


def _create_missing(ctx: Context, names: Iterable[str | None]) -> Sliced[dict[str, int]]:
    """Create the missing topics as far as that is allowed; return the errors of those that were refused."""
    cluster = ctx.cluster
    missing = [name for name in names if name is not None and name not in cluster.topics]
    refused: dict[str, int] = {}
    if not missing:
        return refused
    if cluster.config["auto.create.topics.enable"] and not ctx.may(
        Operation.CREATE, ResourceType.CLUSTER, is_filter=True
    ):
        for name in missing:
            if not ctx.may(Operation.CREATE, ResourceType.TOPIC, name):
                refused[name] = errors.TOPIC_AUTHORIZATION_FAILED
        missing = [name for name in missing if name not in refused]
    own = [name for name in missing if name not in INTERNAL_TOPICS]
    partition_count = cluster.config["num.partitions"]
    if not cluster.config["auto.create.topics.enable"] or len(own) * partition_count > MAX_PARTITIONS_PER_REQUEST:
        # Kafka: a request for too many new topics creates none of them, and says only that they are unknown.
        missing = [name for name in missing if name in INTERNAL_TOPICS]
    topic_names = TopicNames(cluster.topics)
    is_first = True
    for part in in_saves(missing, lambda _: partition_count):
        if not is_first:
            yield WORK_A_SLICE
        is_first = False
        draft = cluster.draft()
        for name in part:
            try:
                if name in INTERNAL_TOPICS:
                    cluster.draft_internal_topic(draft, name)
                elif not topic_names.colliding(name):
                    cluster.draft_topic(draft, name, partition_count, {})
            except TopicRefused as e:
                refused[name] = e.code
        cluster.commit(draft, ctx.now_ms)
    return refused


def _find(ctx: Context, wanted: Wanted, refused: Mapping[str, int], missing: int) -> TopicResponse:
    cluster = ctx.cluster
    if wanted.name is None:
        topic = cluster.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return TopicResponse(errors.UNKNOWN_TOPIC_ID, None if ctx.version >= 12 else "", wanted.topic_id)
        return _describe(ctx, topic)
    topic = cluster.topics.get(wanted.name)
    if topic is not None:
        return _describe(ctx, topic)
    if wanted.name in refused:
        return TopicResponse(refused[wanted.name], wanted.name)
    try:
        check_topic_name(wanted.name)
    except TopicRefused as e:
        return TopicResponse(e.code, wanted.name)
    return TopicResponse(missing, wanted.name, NO_UUID)


def _describe(ctx: Context, topic: Topic) -> TopicResponse:
    partitions = []
    for index in range(topic.partition_count):
        leader, epoch = ctx.cluster.leader_of(topic.name, index)
        replicas = ctx.cluster.controller.replicas_of(topic.name, index)
        partitions.append(PartitionResponse(errors.NONE, index, leader, epoch, *replicas))
    return TopicResponse(errors.NONE, topic.name, topic.topic_id, topic.is_internal, partitions)
