"""CreateAcls (key 30), v1-3: create ACLs. One that exists already is granted too. v3 knows the resource type USER."""

from __future__ import annotations

from fencepost.broker.acls import MAX_ACLS_PER_REQUEST, change_acls, new_acl
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType, reason_against
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import CreateAclsRequest, CreateAclsResponse

Result = CreateAclsResponse.AclCreationResult


def handle(ctx: Context, req: CreateAclsRequest) -> CreateAclsResponse:
    asked = [new_acl(creation) for creation in req.creations]
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER):
        return CreateAclsResponse(results=[Result(errors.CLUSTER_AUTHORIZATION_FAILED)] * len(asked))
    if ctx.cluster.authorizer is None:
        refused = Result(errors.SECURITY_DISABLED, "No Authorizer is configured.")
        return CreateAclsResponse(results=[refused] * len(asked))
    if len(asked) > MAX_ACLS_PER_REQUEST:
        refused = Result(errors.INVALID_REQUEST, f"{len(asked)} ACLs in one request, at most {MAX_ACLS_PER_REQUEST}")
        return CreateAclsResponse(results=[refused] * len(asked))
    reasons = [reason_against(acl) for acl in asked]
    granted = {acl for acl, reason in zip(asked, reasons, strict=True) if reason is None}
    done = Result()
    try:
        change_acls(ctx.cluster, ctx.cluster.metadata.acls | granted)
    except StorageFailed as e:
        done = Result(errors.KAFKA_STORAGE_ERROR, str(e))
    return CreateAclsResponse(
        results=[done if reason is None else Result(errors.INVALID_REQUEST, reason) for reason in reasons]
    )
