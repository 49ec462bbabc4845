"""DescribeAcls (key 29), v1-3: the ACLs that match a filter. v3 knows the resource type USER."""

from __future__ import annotations

from itertools import groupby

from fencepost.broker.acls import acl_filter
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeAclsRequest, DescribeAclsResponse

Resource = DescribeAclsResponse.DescribeAclsResource
AclDescription = DescribeAclsResponse.AclDescription


def handle(ctx: Context, req: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = acl_filter(req)
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeAclsResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.cluster.authorizer is None:
        # Kafka: has this message for a broker without an authorizer.
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=errors.SECURITY_DISABLED, error_message=message)
    found = sorted(acl for acl in ctx.cluster.metadata.acls if wanted.matches(acl))
    return DescribeAclsResponse(
        resources=[
            Resource(
                kind,
                name,
                pattern,
                [AclDescription(acl.principal, acl.host, acl.operation, acl.permission) for acl in acls],
            )
            for (kind, name, pattern), acls in groupby(found, lambda acl: acl[:3])
        ]
    )
