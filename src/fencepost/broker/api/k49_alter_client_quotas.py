"""AlterClientQuotas (key 49), v0-1: refused, because there are no quotas."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.protocol import errors
from fencepost.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse

Result = AlterClientQuotasResponse.EntryData
Entity = AlterClientQuotasResponse.EntityData
# Differs: Kafka has quotas and throttles clients. Fencepost has none: one machine has one user, so quotas would protect
# nothing.
REFUSED = "this broker has no quotas"


def handle(ctx: Context, req: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    refusal = errors.INVALID_REQUEST, REFUSED
    if not ctx.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        refusal = errors.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    return AlterClientQuotasResponse(
        entries=[
            Result(
                *refusal,
                [Entity(entity.entity_type, entity.entity_name) for entity in entry.entity],
            )
            for entry in req.entries
        ]
    )
