"""DescribeTopicPartitions (key 75), v0: topics in the order of their names, a page at a time (KIP-966)."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.topics import Topic, TopicRefused, check_topic_name
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

MAX_PARTITIONS = 2000  # Kafka: max.request.partition.size.limit.
TopicResult = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResult = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(ctx: Context, req: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    cursor = req.cursor
    asked = {topic.name for topic in req.topics}
    names = asked or ctx.cluster.topics.keys()
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        refused = [TopicResult(errors.INVALID_REQUEST, topic.name) for topic in req.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    room = max(min(req.response_partition_limit, MAX_PARTITIONS), 1)
    found: list[TopicResult] = []
    # Kafka: every page names the topics that the client may not see, after the others.
    denied: list[TopicResult] = []
    visible = []
    for name in sorted(names):
        if ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name, is_filter=not asked):
            visible.append(name)
        elif asked and (cursor is None or name >= cursor.topic_name):
            denied.append(TopicResult(errors.TOPIC_AUTHORIZATION_FAILED, name))
    for name in visible:
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
        if not room:
            return DescribeTopicPartitionsResponse(topics=found + denied, next_cursor=Cursor(name, 0))
        operations = ctx.allowed_operations(ResourceType.TOPIC, name)
        topic = ctx.cluster.topics.get(name)
        if topic is None:
            found.append(TopicResult(_missing(name), name, topic_authorized_operations=operations))
            continue
        end = min(topic.partition_count, first + room)
        partitions = [_describe(ctx, topic, index) for index in range(first, end)]
        found.append(TopicResult(errors.NONE, name, topic.topic_id, topic.is_internal, partitions, operations))
        if end < topic.partition_count:
            return DescribeTopicPartitionsResponse(topics=found + denied, next_cursor=Cursor(name, end))
        room -= len(partitions)
    return DescribeTopicPartitionsResponse(topics=found + denied)


def _missing(name: str) -> int:
    try:
        check_topic_name(name)
    except TopicRefused as e:
        return e.code
    return errors.UNKNOWN_TOPIC_OR_PARTITION


def _describe(ctx: Context, topic: Topic, index: int) -> PartitionResult:
    leader, epoch = ctx.cluster.leader_of(topic.name, index)
    nodes, in_sync, offline = ctx.cluster.controller.replicas_of(topic.name, index)
    return PartitionResult(errors.NONE, index, leader, epoch, nodes, in_sync, [], [], offline)
