"""DescribeClientQuotas (key 48), v0-1: always an empty list, because there are no quotas."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse

ENTITY_TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT, SPECIFIED = range(3)
Component = DescribeClientQuotasRequest.ComponentData


def handle(ctx: Context, req: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not ctx.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return DescribeClientQuotasResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED, entries=None)
    error, message = _check(req.components)
    if error:
        return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
    return DescribeClientQuotasResponse(entries=[])


def _check(components: Sequence[Component]) -> tuple[int, str]:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            return errors.INVALID_REQUEST, "Invalid empty entity type."
        if kind in seen:
            return errors.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
        if kind not in ENTITY_TYPES:
            return errors.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}"
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            return errors.INVALID_REQUEST, f"Unknown match type {component.match_type}"
        if (component.match is not None) is not (component.match_type == EXACT):
            return errors.INVALID_REQUEST, "match type 0 (exact) takes a name, the others take none"
        seen.add(kind)
    if "ip" in seen and len(seen) > 1:
        return errors.INVALID_REQUEST, "a filter for ip cannot be combined with one for user or client-id"
    return errors.NONE, ""
