"""AlterConfigs (key 33), v0-2: replace all settings of topics. Newer clients use IncrementalAlterConfigs (key 44)."""

from __future__ import annotations

from fencepost.broker.alter_configs import Change, alter
from fencepost.broker.node import Context
from fencepost.broker.slices import Sliced
from fencepost.protocol.messages import AlterConfigsRequest, AlterConfigsResponse

Wanted = AlterConfigsRequest.AlterConfigsResource
Response = AlterConfigsResponse.AlterConfigsResourceResponse


def handle(ctx: Context, req: AlterConfigsRequest) -> Sliced[AlterConfigsResponse]:
    results = yield from alter(ctx, [_change(wanted) for wanted in req.resources], req.validate_only)
    return AlterConfigsResponse(
        responses=[
            Response(*result, wanted.resource_type, wanted.resource_name)
            for wanted, result in zip(req.resources, results, strict=True)
        ]
    )


def _change(wanted: Wanted) -> Change:
    given = {config.name: config.value for config in wanted.configs if config.value is not None}
    return Change(
        wanted.resource_type,
        wanted.resource_name,
        [config.name for config in wanted.configs],
        [config.name for config in wanted.configs if config.value is None],
        lambda before: dict(given),
    )
