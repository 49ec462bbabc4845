"""SyncGroup (key 14), v0-5: the leader hands out assignments, the others wait for theirs. v5 checks the protocol."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.classic.requests import JoinResult, LeaveResult, Sync, SyncResult
from fencepost.protocol import errors
from fencepost.protocol.messages import SyncGroupRequest, SyncGroupResponse


def handle(ctx: Context, req: SyncGroupRequest) -> None:
    def answer(result: JoinResult | SyncResult | LeaveResult) -> None:
        assert isinstance(result, SyncResult)
        ctx.reply(
            SyncGroupResponse(
                error_code=result.error_code,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    if not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        answer(SyncResult(errors.GROUP_AUTHORIZATION_FAILED))
        return
    cmd = Sync(
        group_id=req.group_id,
        version=ctx.version,
        generation_id=req.generation_id,
        member_id=req.member_id,
        group_instance_id=req.group_instance_id,
        protocol_type=req.protocol_type,
        protocol_name=req.protocol_name,
        assignments={assignment.member_id: assignment.assignment for assignment in req.assignments},
    )
    ctx.cluster.groups.sync(cmd, answer, ctx.now_ms)
