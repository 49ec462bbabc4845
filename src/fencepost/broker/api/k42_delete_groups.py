"""DeleteGroups (key 42), v0-2: groups without members, and their offsets."""

from __future__ import annotations

from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.node import Context
from fencepost.broker.slices import Sliced, each
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(ctx: Context, req: DeleteGroupsRequest) -> Sliced[DeleteGroupsResponse]:
    # Kafka: a group that is named more than once is deleted, and answered, once.
    names = dict.fromkeys(req.groups_names)
    results = yield from each(names, lambda name: Result(name, _delete(ctx, name)))
    return DeleteGroupsResponse(results=results)


def _delete(ctx: Context, group_id: str) -> int:
    if not ctx.may(Operation.DELETE, ResourceType.GROUP, group_id):
        return errors.GROUP_AUTHORIZATION_FAILED
    try:
        return ctx.cluster.groups.delete_group(group_id, ctx.now_ms)
    except NotCoordinator:
        return errors.NOT_COORDINATOR
