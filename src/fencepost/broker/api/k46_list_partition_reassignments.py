"""ListPartitionReassignments (key 46), v0: none, as partitions stay where they are."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def handle(ctx: Context, req: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
