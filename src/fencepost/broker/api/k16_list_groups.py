"""ListGroups (key 16), v0-5: all groups. v4 filtered by state; v5 filtered by type, of which there is one: classic."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol.messages import ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
ListedGroup = ListGroupsResponse.ListedGroup


def handle(ctx: Context, req: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in req.states_filter}
    types = {kind.lower() for kind in req.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse()
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.group_state, CLASSIC)
            for group in ctx.cluster.groups.all_groups()
            if not states or group.group_state.lower() in states
        ]
    )
