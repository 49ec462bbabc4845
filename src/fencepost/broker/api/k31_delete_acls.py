"""DeleteAcls (key 31), v1-3: delete the ACLs that match filters, and tell which. v3 knows the resource type USER."""

from __future__ import annotations

from fencepost.broker.acls import acl_filter, change_acls
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Acl, AclFilter, Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import DeleteAclsRequest, DeleteAclsResponse

Result = DeleteAclsResponse.DeleteAclsFilterResult
MatchingAcl = DeleteAclsResponse.DeleteAclsMatchingAcl


def handle(ctx: Context, req: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = [acl_filter(wanted) for wanted in req.filters]
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER):
        return DeleteAclsResponse(filter_results=[Result(errors.CLUSTER_AUTHORIZATION_FAILED)] * len(filters))
    if ctx.cluster.authorizer is None:
        refused = Result(errors.SECURITY_DISABLED, "No Authorizer is configured.")
        return DeleteAclsResponse(filter_results=[refused] * len(filters))
    acls = ctx.cluster.metadata.acls
    found = [sorted(acl for acl in acls if wanted.matches(acl)) for wanted in filters]
    try:
        change_acls(ctx.cluster, acls.difference(*found))
    except StorageFailed as e:
        return DeleteAclsResponse(filter_results=[Result(errors.KAFKA_STORAGE_ERROR, str(e))] * len(filters))
    return DeleteAclsResponse(
        filter_results=[_deleted(wanted, matching) for wanted, matching in zip(filters, found, strict=True)]
    )


def _deleted(wanted: AclFilter, acls: list[Acl]) -> Result:
    if wanted.is_unknown():
        return Result(errors.INVALID_REQUEST, "the filter has a type, an operation or a permission that is unknown")
    return Result(error_message=None, matching_acls=[MatchingAcl(errors.NONE, None, *acl) for acl in acls])
