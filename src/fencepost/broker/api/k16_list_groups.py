"""ListGroups (key 16), v0-5: all groups. v4 filtered by state; v5 filtered by type, classic or consumer."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol.messages import ListGroupsRequest, ListGroupsResponse

ListedGroup = ListGroupsResponse.ListedGroup


def handle(ctx: Context, req: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in req.states_filter}
    sees_all = ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER, is_filter=True)
    types = {kind.lower() for kind in req.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for group in ctx.cluster.groups.all_groups(ctx.now_ms)
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
            if sees_all or ctx.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, is_filter=True)
        ]
    )
