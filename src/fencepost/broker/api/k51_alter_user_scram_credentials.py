"""AlterUserScramCredentials (key 51), v0: add, change and delete the SCRAM credentials of users."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.broker.users import UserRefused, decide_alteration
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def handle(ctx: Context, req: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER):
        names = dict.fromkeys([*(each.name for each in req.deletions), *(each.name for each in req.upsertions)])
        refused = [Result(name, errors.CLUSTER_AUTHORIZATION_FAILED) for name in names]
        return AlterUserScramCredentialsResponse(results=refused)
    results, users = decide_alteration(ctx.cluster.metadata.users, req.deletions, req.upsertions)
    if users != ctx.cluster.metadata.users:
        try:
            ctx.cluster.save(ctx.cluster.metadata._replace(users=users))
        except StorageFailed as e:
            failed = UserRefused(errors.KAFKA_STORAGE_ERROR, str(e))
            results = {user: refused or failed for user, refused in results.items()}
    return AlterUserScramCredentialsResponse(
        results=[Result(user, *(refused or (errors.NONE, None))) for user, refused in results.items()]
    )
