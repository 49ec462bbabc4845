"""DescribeAcls (key 29), v1-3: refused, because there is no authorizer: every client may do everything."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeAclsRequest, DescribeAclsResponse


def handle(ctx: Context, req: DescribeAclsRequest) -> DescribeAclsResponse:
    # Kafka: has this message for a broker without an authorizer.
    message = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(error_code=errors.SECURITY_DISABLED, error_message=message)
