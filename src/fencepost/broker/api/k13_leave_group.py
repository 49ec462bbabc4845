"""LeaveGroup (key 13), v0-5: members leave. v3 several at once, and static ones by their instance id."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.classic.requests import JoinResult, Leaver, LeaveResult, SyncResult
from fencepost.protocol import errors
from fencepost.protocol.messages import LeaveGroupRequest, LeaveGroupResponse

MemberResponse = LeaveGroupResponse.MemberResponse


def handle(ctx: Context, req: LeaveGroupRequest) -> None:
    def answer(result: JoinResult | SyncResult | LeaveResult) -> None:
        assert isinstance(result, LeaveResult)
        error = result.error_code
        if ctx.version < 3 and not error and result.members:
            error = result.members[0][2]  # One member, so its error is the response's.
        ctx.reply(LeaveGroupResponse(error_code=error, members=[MemberResponse(*member) for member in result.members]))

    if not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        answer(LeaveResult(errors.GROUP_AUTHORIZATION_FAILED))
        return
    if ctx.version < 3:
        leavers = [Leaver(req.member_id)]
    else:
        leavers = [Leaver(member.member_id, member.group_instance_id) for member in req.members]
    ctx.cluster.groups.leave(req.group_id, leavers, answer, ctx.now_ms)
