"""DescribeUserScramCredentials (key 50), v0: finds none, because clients do not log in."""

from __future__ import annotations

from collections import Counter

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(ctx: Context, req: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        error = errors.CLUSTER_AUTHORIZATION_FAILED
        refused = [Result(error_code=error) for _ in req.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=error, results=refused)
    times = Counter(user.name for user in req.users or ())
    return DescribeUserScramCredentialsResponse(results=[_describe(name, count) for name, count in times.items()])


def _describe(name: str, times: int) -> Result:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Result(name, errors.DUPLICATE_RESOURCE, message)
    message = f"Attempt to describe a user credential that does not exist: {name}"
    return Result(name, errors.RESOURCE_NOT_FOUND, message)
