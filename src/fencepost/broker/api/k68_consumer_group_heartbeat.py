"""ConsumerGroupHeartbeat (key 68), v0-1: the consumer protocol's only request: join, stay, change, leave (KIP-848).

v1 subscriptions by pattern, and members choose their own id.
"""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat
from fencepost.machines.group.consumer.records import by_topic
from fencepost.protocol import errors
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

Assignment = ConsumerGroupHeartbeatResponse.Assignment
TopicPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions


def handle(ctx: Context, req: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    if not ctx.cluster.metadata.group_version:
        return ConsumerGroupHeartbeatResponse(error_code=errors.UNSUPPORTED_VERSION)
    if not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=errors.GROUP_AUTHORIZATION_FAILED)
    names = dict.fromkeys(req.subscribed_topic_names or ())
    if not all(ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return ConsumerGroupHeartbeatResponse(error_code=errors.TOPIC_AUTHORIZATION_FAILED)
    owned = req.topic_partitions
    cmd = ConsumerHeartbeat(
        group_id=req.group_id,
        version=ctx.version,
        member_id=req.member_id,
        member_epoch=req.member_epoch,
        instance_id=req.instance_id,
        rack_id=req.rack_id,
        rebalance_timeout_ms=req.rebalance_timeout_ms,
        topic_names=None if req.subscribed_topic_names is None else tuple(req.subscribed_topic_names),
        topic_regex=req.subscribed_topic_regex,
        server_assignor=req.server_assignor,
        owned=None if owned is None else frozenset((t.topic_id, index) for t in owned for index in t.partitions),
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.connection.host}",
        may_describe=lambda name: ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name, is_filter=True),
    )
    result = ctx.cluster.groups.consumer_heartbeat(cmd, ctx.now_ms)
    assignment = None
    if result.assignment is not None:
        assignment = Assignment([TopicPartitions(*part) for part in by_topic(result.assignment).items()])
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
