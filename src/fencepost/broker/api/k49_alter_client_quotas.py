"""AlterClientQuotas (key 49), v0-1: refused, as nothing here would heed a quota."""

from __future__ import annotations

from fencepost.broker.node import Context
from fencepost.protocol import errors
from fencepost.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse

Result = AlterClientQuotasResponse.EntryData
Entity = AlterClientQuotasResponse.EntityData
# Differs: Kafka keeps quotas and slows clients down; a broker for one machine has nobody to protect from whom.
REFUSED = "this broker has no quotas, and would not heed one"


def handle(ctx: Context, req: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            Result(
                errors.INVALID_REQUEST,
                REFUSED,
                [Entity(entity.entity_type, entity.entity_name) for entity in entry.entity],
            )
            for entry in req.entries
        ]
    )
