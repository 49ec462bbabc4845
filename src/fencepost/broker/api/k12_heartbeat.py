"""Heartbeat (key 12), v0-4: a member is alive; the answer tells it of a rebalance. v3 static members."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.classic.requests import Heartbeat
from fencepost.protocol import errors
from fencepost.protocol.messages import HeartbeatRequest, HeartbeatResponse


def handle(ctx: Context, req: HeartbeatRequest) -> HeartbeatResponse:
    if not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        return HeartbeatResponse(error_code=errors.GROUP_AUTHORIZATION_FAILED)
    cmd = Heartbeat(
        group_id=req.group_id,
        generation_id=req.generation_id,
        member_id=req.member_id,
        group_instance_id=req.group_instance_id,
    )
    return HeartbeatResponse(error_code=ctx.cluster.groups.heartbeat(cmd, ctx.now_ms))
