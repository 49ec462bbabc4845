"""CreateAcls (key 30), v1-3: refused, because there is no authorizer."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import CreateAclsRequest, CreateAclsResponse

Result = CreateAclsResponse.AclCreationResult


def handle(ctx: Context, req: CreateAclsRequest) -> CreateAclsResponse:
    refused = Result(errors.SECURITY_DISABLED, "No Authorizer is configured.")
    return CreateAclsResponse(results=[refused] * len(req.creations))
