"""DescribeGroups (key 15), v0-6: state and members of classic groups. v6 an unknown group is an error, not `Dead`."""

from __future__ import annotations

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.broker.slices import Sliced, each
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.group.shard import describe_classic
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

Group = DescribeGroupsResponse.DescribedGroup
Member = DescribeGroupsResponse.DescribedGroupMember


def handle(ctx: Context, req: DescribeGroupsRequest) -> Sliced[DescribeGroupsResponse]:
    # Differs: Fencepost describes a group once, however often a DescribeGroups names it.
    groups = yield from each(dict.fromkeys(req.groups), lambda group_id: _describe(ctx, req, group_id))
    return DescribeGroupsResponse(groups=groups)


def _describe(ctx: Context, req: DescribeGroupsRequest, group_id: str) -> Group:
    if not ctx.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return Group(errors.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    group = _find(ctx, group_id)
    if req.include_authorized_operations and not group.error_code:
        group.authorized_operations = ctx.allowed_operations(ResourceType.GROUP, group_id)
    return group


def _find(ctx: Context, group_id: str) -> Group:
    try:
        shard = ctx.cluster.groups.shard_of(group_id, ctx.now_ms)
    except NotCoordinator:
        return Group(errors.NOT_COORDINATOR, None, group_id)
    found = describe_classic(shard, group_id)
    if found is None:
        if ctx.version >= 6:
            is_other = group_id in shard.consumer
            message = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
            return Group(errors.GROUP_ID_NOT_FOUND, message, group_id, "Dead")
        return Group(group_id=group_id, group_state="Dead")
    members = [
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host, m.metadata, m.assignment)
        for m in found.members
    ]
    return Group(errors.NONE, None, group_id, found.group_state, found.protocol_type, found.protocol_data, members)
