"""JoinGroup (key 11), v0-9: become a member of a group; answered when all members have joined the rebalance.

v4 a new member gets a member id first and joins again with it; v5 static members; v7 protocol type; v9 skip_assignment.
"""

from __future__ import annotations

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.classic.requests import Join, JoinResult, LeaveResult, SyncResult
from fencepost.protocol import errors
from fencepost.protocol.messages import JoinGroupRequest, JoinGroupResponse

Member = JoinGroupResponse.JoinGroupResponseMember


def handle(ctx: Context, req: JoinGroupRequest) -> None:
    def answer(result: JoinResult | SyncResult | LeaveResult) -> None:
        assert isinstance(result, JoinResult)
        name = result.protocol_name
        ctx.reply(
            JoinGroupResponse(
                error_code=result.error_code,
                generation_id=result.generation_id,
                protocol_type=result.protocol_type,
                protocol_name="" if name is None and ctx.version < 7 else name,
                leader=result.leader,
                skip_assignment=result.skip_assignment,
                member_id=result.member_id,
                members=[Member(*member) for member in result.members],
            )
        )

    if not ctx.may(Operation.READ, ResourceType.GROUP, req.group_id):
        answer(JoinResult(errors.GROUP_AUTHORIZATION_FAILED, ""))
        return
    # The metadata of all members goes into one record of the group. Metadata that alone is too large never fits.
    if sum(len(protocol.metadata) for protocol in req.protocols) > ctx.cluster.config["message.max.bytes"]:
        answer(JoinResult(errors.UNKNOWN_SERVER_ERROR, req.member_id))
        return
    cmd = Join(
        group_id=req.group_id,
        version=ctx.version,
        member_id=req.member_id,
        group_instance_id=req.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.connection.host}",
        session_timeout_ms=req.session_timeout_ms,
        rebalance_timeout_ms=req.rebalance_timeout_ms if ctx.version >= 1 else req.session_timeout_ms,
        protocol_type=req.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in req.protocols),
        may_describe=lambda name: ctx.may(Operation.DESCRIBE, ResourceType.TOPIC, name, is_filter=True),
    )
    try:
        ctx.cluster.groups.join(cmd, answer, ctx.now_ms)
    except NotCoordinator:
        answer(JoinResult(errors.NOT_COORDINATOR, ""))
