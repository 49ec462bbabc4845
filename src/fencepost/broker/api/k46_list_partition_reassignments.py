"""ListPartitionReassignments (key 46), v0: always an empty list, because partitions do not move."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def handle(ctx: Context, req: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
