"""DescribeUserScramCredentials (key 50), v0: which users have SCRAM credentials, of which mechanisms."""

from __future__ import annotations

from collections import Counter

from fencepost.broker.node import Context
from fencepost.broker.users import Users
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from fencepost.protocol.scram import SCRAM_MECHANISMS

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
CredentialInfo = DescribeUserScramCredentialsResponse.CredentialInfo


def handle(ctx: Context, req: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        error = errors.CLUSTER_AUTHORIZATION_FAILED
        refused = [Result(error_code=error) for _ in req.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=error, results=refused)
    users = ctx.cluster.metadata.users
    # Kafka: null asks for all users, and an empty list too.
    times = Counter(user.name for user in req.users or ()) or Counter(dict.fromkeys(users, 1))
    return DescribeUserScramCredentialsResponse(
        results=[_describe(users, name, count) for name, count in times.items()]
    )


def _describe(users: Users, name: str, times: int) -> Result:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Result(name, errors.DUPLICATE_RESOURCE, message)
    if name not in users:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return Result(name, errors.RESOURCE_NOT_FOUND, message)
    found = sorted((SCRAM_MECHANISMS[mechanism].number, kept.iterations) for mechanism, kept in users[name].items())
    return Result(name, errors.NONE, "", [CredentialInfo(*info) for info in found])
