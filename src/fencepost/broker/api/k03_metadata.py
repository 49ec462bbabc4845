"""Metadata (key 3), v0-13: brokers, topics, and who leads each partition. A topic may be created on the way.

v1 null asks for all topics, an empty list for none (v0: empty asks for all); v4 the client says whether to create;
v10 topic ids; v13 a top-level error.
"""

from __future__ import annotations

from fencepost.broker.cluster import Topic, TopicRefused, check_topic_name
from fencepost.broker.node import Context
from fencepost.broker.topic_names import TopicNames
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.schema import NO_UUID

TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = MetadataResponse.MetadataResponsePartition
BrokerResponse = MetadataResponse.MetadataResponseBroker


def handle(ctx: Context, req: MetadataRequest) -> MetadataResponse:
    cluster = ctx.cluster
    if req.topics is None or (ctx.version == 0 and not req.topics):
        topics = [_describe(ctx, topic) for topic in cluster.topics.values()]
    else:
        # Kafka: a topic that is named more than once is described once.
        distinct = {(wanted.name, wanted.topic_id): wanted for wanted in req.topics}.values()
        names = TopicNames(cluster.topics)
        try:
            with cluster.one_save():
                topics = [_find(ctx, names, wanted, req.allow_auto_topic_creation) for wanted in distinct]
        except StorageFailed:
            topics = [_find(ctx, names, wanted, False, errors.LEADER_NOT_AVAILABLE) for wanted in distinct]
    return MetadataResponse(
        brokers=[BrokerResponse(b.node_id, b.host, b.port) for b in cluster.brokers],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.brokers[0].node_id,
        topics=topics,
    )


def _find(
    ctx: Context,
    names: TopicNames,
    wanted: MetadataRequest.MetadataRequestTopic,
    may_create: bool,
    missing: int = errors.UNKNOWN_TOPIC_OR_PARTITION,
) -> TopicResponse:
    cluster = ctx.cluster
    if wanted.name is None:
        topic = cluster.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return TopicResponse(errors.UNKNOWN_TOPIC_ID, None if ctx.version >= 12 else "", wanted.topic_id)
        return _describe(ctx, topic)
    topic = cluster.topics.get(wanted.name)
    if topic is not None:
        return _describe(ctx, topic)
    try:
        check_topic_name(wanted.name)
        if wanted.name in ("__transaction_state", "__consumer_offsets"):
            if may_create:
                return _describe(ctx, cluster.ensure_internal_topic(wanted.name, ctx.now_ms))
        elif may_create and cluster.config["auto.create.topics.enable"] and not names.colliding(wanted.name):
            return _describe(ctx, cluster.create_topic(wanted.name, cluster.config["num.partitions"], {}, ctx.now_ms))
    except TopicRefused as e:
        return TopicResponse(e.code, wanted.name)
    return TopicResponse(missing, wanted.name, NO_UUID)


def _describe(ctx: Context, topic: Topic) -> TopicResponse:
    leader_of = ctx.cluster.leader_of
    partitions = []
    for index, partition in enumerate(topic.partitions):
        leader = leader_of(index).node_id
        epoch = partition.leader_epochs.current
        partitions.append(PartitionResponse(errors.NONE, index, leader, epoch, [leader], [leader]))
    return TopicResponse(errors.NONE, topic.name, topic.topic_id, topic.is_internal, partitions)
