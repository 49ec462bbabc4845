"""DeleteGroups (key 42), v0-2: groups without members, and their offsets."""

from __future__ import annotations

from fencepost.broker.coordinator.not_coordinator import NotCoordinator
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(ctx: Context, req: DeleteGroupsRequest) -> DeleteGroupsResponse:
    # Kafka: a group that is named more than once is deleted, and answered, once.
    return DeleteGroupsResponse(results=[Result(name, _delete(ctx, name)) for name in dict.fromkeys(req.groups_names)])


def _delete(ctx: Context, group_id: str) -> int:
    if not ctx.may(Operation.DELETE, ResourceType.GROUP, group_id):
        return errors.GROUP_AUTHORIZATION_FAILED
    try:
        return ctx.cluster.groups.delete_group(group_id, ctx.now_ms)
    except NotCoordinator:
        return errors.NOT_COORDINATOR
