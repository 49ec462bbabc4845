"""DescribeConfigs (key 32), v1-4: the settings of topics and of the broker, with the source of each value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fencepost.broker.alter_configs import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
    denial,
)
from fencepost.broker.cluster import Cluster
from fencepost.broker.config import INERT_TOPIC_SETTINGS, SETTINGS, TOPIC_SETTINGS, Setting, setting_of
from fencepost.broker.node import Context
from fencepost.broker.slices import DESCRIBED_SETTINGS, Sliced, each
from fencepost.broker.topics import TopicRefused, check_topic_name
from fencepost.machines.acl.acls import Operation
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse

# The sources of a value.
SOURCE_TOPIC, SOURCE_STATIC_BROKER, SOURCE_DEFAULT = 1, 4, 5
STRING, LIST = 2, 7
TYPES = {"bool": 1, "int": 3, "long": 5, "float": 6, "password": 9}

Wanted = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class Shown(NamedTuple):
    name: str
    value: str | None  # None: a secret.
    source: int
    is_read_only: bool
    setting: Setting
    synonyms: tuple[tuple[str, str | None, int], ...] = ()


def topic_settings(cluster: Cluster, own: Mapping[str, str]) -> list[Shown]:
    config = cluster.config
    shown = []
    for name, fallback in TOPIC_SETTINGS.items():
        setting = SETTINGS[fallback]
        synonyms = [(fallback, _text(setting.default), SOURCE_DEFAULT)]
        if fallback in config.given:
            synonyms.insert(0, (fallback, _text(config[fallback]), SOURCE_STATIC_BROKER))
        if name in own:
            synonyms.insert(0, (name, own[name], SOURCE_TOPIC))
        _, value, source = synonyms[0]
        shown.append(Shown(name, value, source, False, setting, tuple(synonyms)))
    for name, setting in INERT_TOPIC_SETTINGS.items():
        source = SOURCE_TOPIC if name in own else SOURCE_DEFAULT
        shown.append(Shown(name, own.get(name, _text(setting.default)), source, False, setting))
    return sorted(shown)


def _broker_settings(cluster: Cluster) -> list[Shown]:
    shown = []
    own = {name: setting_of(name) for name in cluster.config.given if name not in SETTINGS}  # Of single listeners.
    for name, setting in [*SETTINGS.items(), *own.items()]:
        assert setting is not None
        source = SOURCE_STATIC_BROKER if name in cluster.config.given else SOURCE_DEFAULT
        value = None if setting.kind == "password" else _text(cluster.config[name])
        shown.append(Shown(name, value, source, True, setting, ((name, value, source),)))
    return sorted(shown)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def handle(ctx: Context, req: DescribeConfigsRequest) -> Sliced[DescribeConfigsResponse]:
    # Differs: Fencepost describes a resource once, however often a DescribeConfigs names it.
    distinct = {(wanted.resource_type, wanted.resource_name): wanted for wanted in req.resources}.values()
    results = yield from each(distinct, lambda wanted: _describe(ctx, wanted, req), DESCRIBED_SETTINGS)
    return DescribeConfigsResponse(results=results)


def _describe(ctx: Context, wanted: Wanted, req: DescribeConfigsRequest) -> Result:
    found: Iterable[Shown]
    if denied := denial(ctx, Operation.DESCRIBE_CONFIGS, wanted.resource_type, wanted.resource_name):
        return _refused(wanted, denied.error_code, denied.error_message)
    if wanted.resource_type == TOPIC_RESOURCE:
        topic = ctx.cluster.topics.get(wanted.resource_name)
        if topic is None:
            try:
                check_topic_name(wanted.resource_name)
            except TopicRefused as e:
                return _refused(wanted, e.code, str(e))
            return _refused(wanted, errors.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic")
        found = topic_settings(ctx.cluster, topic.configs)
    elif wanted.resource_type == BROKER_RESOURCE:
        ids = {str(broker.node_id) for broker in ctx.cluster.brokers}
        if wanted.resource_name not in ids | {""}:
            return _refused(
                wanted,
                errors.INVALID_REQUEST,
                f"there is no broker {wanted.resource_name}, only {', '.join(sorted(ids))}",
            )
        # Without a name the client asks for settings that were changed for all brokers while they run: there are none.
        found = _broker_settings(ctx.cluster) if wanted.resource_name else []
    elif wanted.resource_type in (LOGGER_RESOURCE, METRICS_RESOURCE, GROUP_RESOURCE):
        # Differs: Kafka has settings for loggers, for groups and for client metrics. Fencepost lists none.
        found = []
    else:
        return _refused(wanted, errors.INVALID_REQUEST, f"resource type {wanted.resource_type} is unknown")
    keys = wanted.configuration_keys
    configs = []
    for shown in found:
        if keys and shown.name not in keys:
            continue
        synonyms = [Synonym(*s) for s in shown.synonyms] if req.include_synonyms else []
        kind = TYPES.get(shown.setting.kind, LIST if shown.setting.is_list else STRING)
        is_secret = shown.setting.kind == "password"
        doc = shown.setting.doc if req.include_documentation else None
        configs.append(
            ResourceResult(shown.name, shown.value, shown.is_read_only, shown.source, is_secret, synonyms, kind, doc)
        )
    return Result(errors.NONE, None, wanted.resource_type, wanted.resource_name, configs)


def _refused(wanted: Wanted, error: int, message: str | None) -> Result:
    return Result(error, message, wanted.resource_type, wanted.resource_name)
