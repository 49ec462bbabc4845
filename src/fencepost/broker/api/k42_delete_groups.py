"""DeleteGroups (key 42), v0-2: groups without members, and their offsets."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(ctx: Context, req: DeleteGroupsRequest) -> DeleteGroupsResponse:
    # Kafka: a group that is named more than once is deleted, and answered, once.
    groups = ctx.cluster.groups
    return DeleteGroupsResponse(
        results=[Result(name, groups.delete_group(name, ctx.now_ms)) for name in dict.fromkeys(req.groups_names)]
    )
