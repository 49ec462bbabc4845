"""ListConfigResources (key 74), v0-1: the resources that have settings. v0 lists client metrics only; v1 any type."""

from __future__ import annotations

from fencepost.broker.alter_configs import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
)
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse

ALL_TYPES = frozenset({TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, METRICS_RESOURCE, GROUP_RESOURCE})
Resource = ListConfigResourcesResponse.ConfigResource


def handle(ctx: Context, req: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not ctx.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return ListConfigResourcesResponse(error_code=errors.CLUSTER_AUTHORIZATION_FAILED)
    types = set(req.resource_types) or ALL_TYPES
    if ctx.version == 0:
        types = {METRICS_RESOURCE}
    if not types <= ALL_TYPES:
        return ListConfigResourcesResponse(error_code=errors.UNSUPPORTED_VERSION)
    found = [
        Resource(str(broker.node_id), kind)
        for kind in (LOGGER_RESOURCE, BROKER_RESOURCE)
        if kind in types
        for broker in ctx.cluster.brokers
    ]
    if TOPIC_RESOURCE in types:
        found += [Resource(name, TOPIC_RESOURCE) for name in sorted(ctx.cluster.topics)]
    return ListConfigResourcesResponse(config_resources=found)
