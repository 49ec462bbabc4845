"""DescribeCluster (key 60), v0-2: the brokers and the id of the cluster."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
DescribeClusterBroker = DescribeClusterResponse.DescribeClusterBroker


def handle(ctx: Context, req: DescribeClusterRequest) -> DescribeClusterResponse:
    if req.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=errors.MISMATCHED_ENDPOINT_TYPE if req.endpoint_type == 2 else errors.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"the request is for endpoint type {req.endpoint_type}, this is a broker (type {BROKERS})",
            endpoint_type=req.endpoint_type,
        )
    return DescribeClusterResponse(
        cluster_id=ctx.cluster.cluster_id,
        controller_id=ctx.cluster.brokers[0].node_id,
        brokers=[DescribeClusterBroker(b.node_id, b.host, b.port) for b in map(ctx.address_of, ctx.cluster.brokers)],
    )
