"""IncrementalAlterConfigs (key 44), v0-1: set, reset, append to or subtract from single settings of topics."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.alter_configs import Change, alter, list_parts
from fencepost.broker.cluster import Cluster
from fencepost.broker.config import topic_setting
from fencepost.broker.node import Context
from fencepost.broker.slices import Sliced
from fencepost.broker.topics import TopicRefused
from fencepost.protocol import errors
from fencepost.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

SET, DELETE, APPEND, SUBTRACT = range(4)
Wanted = IncrementalAlterConfigsRequest.AlterConfigsResource
Config = IncrementalAlterConfigsRequest.AlterableConfig
Response = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def handle(ctx: Context, req: IncrementalAlterConfigsRequest) -> Sliced[IncrementalAlterConfigsResponse]:
    results = yield from alter(ctx, [_change(ctx.cluster, wanted) for wanted in req.resources], req.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            Response(*result, wanted.resource_type, wanted.resource_name)
            for wanted, result in zip(req.resources, results, strict=True)
        ]
    )


def _change(cluster: Cluster, wanted: Wanted) -> Change:
    def new_configs(before: Mapping[str, str]) -> dict[str, str]:
        configs = dict(before)
        for config in wanted.configs:
            _apply(cluster, configs, config)
        return configs

    return Change(
        wanted.resource_type,
        wanted.resource_name,
        [config.name for config in wanted.configs],
        [config.name for config in wanted.configs if config.value is None and config.config_operation != DELETE],
        new_configs,
    )


def _apply(cluster: Cluster, configs: dict[str, str], config: Config) -> None:
    name, value = config.name, config.value or ""
    if config.config_operation == SET:
        configs[name] = value
    elif config.config_operation == DELETE:
        configs.pop(name, None)
    elif config.config_operation in (APPEND, SUBTRACT):
        setting = topic_setting(name)
        if setting is None or not setting.is_list:
            word = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
            raise TopicRefused(errors.INVALID_CONFIG, f"Can't {word} to key {name} because its type is not LIST.")
        parts = list_parts(cluster, configs, name)
        given = value.split(",")
        if config.config_operation == APPEND:
            parts += [word for word in dict.fromkeys(given) if word not in parts]
        else:
            parts = [word for word in parts if word not in given]
        configs[name] = ",".join(parts)
    else:
        # Differs: Kafka answers UNKNOWN_SERVER_ERROR to an unknown operation in IncrementalAlterConfigs. Fencepost
        # answers INVALID_REQUEST.
        raise TopicRefused(
            errors.INVALID_REQUEST, f"{name}: operation {config.config_operation} is unknown, only 0 to 3 are known"
        )
