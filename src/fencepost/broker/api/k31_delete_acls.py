"""DeleteAcls (key 31), v1-3: refused, because there is no authorizer."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import DeleteAclsRequest, DeleteAclsResponse

Result = DeleteAclsResponse.DeleteAclsFilterResult


def handle(ctx: Context, req: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = Result(errors.SECURITY_DISABLED, "No Authorizer is configured.")
    return DeleteAclsResponse(filter_results=[refused] * len(req.filters))
