"""DescribeCluster (key 60), v0-2: the brokers and the id of the cluster."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
NOT_ASKED = -(2**31)
DescribeClusterBroker = DescribeClusterResponse.DescribeClusterBroker


def handle(ctx: Context, req: DescribeClusterRequest) -> DescribeClusterResponse:
    if req.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=errors.MISMATCHED_ENDPOINT_TYPE if req.endpoint_type == 2 else errors.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"the request is for endpoint type {req.endpoint_type}, this is a broker (type {BROKERS})",
            endpoint_type=req.endpoint_type,
        )
    operations = NOT_ASKED
    if req.include_cluster_authorized_operations:
        can_see = ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER)
        operations = ctx.allowed_operations(ResourceType.CLUSTER) if can_see else 0
    return DescribeClusterResponse(
        cluster_id=ctx.cluster.cluster_id,
        controller_id=ctx.cluster.brokers[0].node_id,
        brokers=[DescribeClusterBroker(b.node_id, b.host, b.port) for b in map(ctx.address_of, ctx.cluster.brokers)],
        cluster_authorized_operations=operations,
    )
