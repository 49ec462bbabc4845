"""ListPartitionReassignments (key 46), v0: always an empty list, because partitions do not move."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def handle(ctx: Context, req: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return ListPartitionReassignmentsResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    return ListPartitionReassignmentsResponse(error_message=None)
