"""The rules that AlterConfigs and IncrementalAlterConfigs share: which changes are allowed, and how they are made.

A resource changes as a whole or not at all. A topic's new settings take effect at once and survive a restart. The
broker's settings cannot change while it runs. Follows Kafka's ConfigAdminManager and ConfigurationControlManager.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fencepost.broker.cluster import Cluster
from fencepost.broker.config import SETTINGS, TOPIC_SETTINGS, check_topic_settings
from fencepost.broker.node import Context
from fencepost.broker.slices import WORK_A_SLICE, Sliced, in_saves
from fencepost.broker.topics import Topic, TopicRefused, check_internal_settings, check_topic_name
from fencepost.machines.acl.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors

TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, METRICS_RESOURCE, GROUP_RESOURCE = 2, 4, 8, 16, 32
MAX_VALUE_LENGTH = 32_767
_INTEGER = re.compile("[+-]?[0-9]{1,10}")


class Change(NamedTuple):
    """One resource of a request. `new_configs` takes the present settings and returns the new; raises TopicRefused."""

    resource_type: int
    resource_name: str
    names: list[str]
    names_without_value: list[str]
    new_configs: Callable[[Mapping[str, str]], dict[str, str]]


class AlterResult(NamedTuple):
    error_code: int
    error_message: str | None


DONE = AlterResult(errors.NONE, None)


def denial(ctx: Context, operation: Operation, resource_type: int, resource_name: str) -> AlterResult | None:
    """The refusal of a client that may not do this to the settings of a resource; None if it may."""
    if resource_type == TOPIC_RESOURCE:
        kind, name, error = ResourceType.TOPIC, resource_name, errors.TOPIC_AUTHORIZATION_FAILED
    elif resource_type == GROUP_RESOURCE:
        kind, name, error = ResourceType.GROUP, resource_name, errors.GROUP_AUTHORIZATION_FAILED
    else:
        kind, name, error = ResourceType.CLUSTER, CLUSTER_NAME, errors.CLUSTER_AUTHORIZATION_FAILED
    return None if ctx.may(operation, kind, name) else AlterResult(error, None)


def alter(ctx: Context, changes: list[Change], validate_only: bool) -> Sliced[list[AlterResult]]:
    times = Counter((change.resource_type, change.resource_name) for change in changes)
    results: list[AlterResult] = []
    for part in in_saves(changes, lambda change: 1):
        if results:
            yield WORK_A_SLICE
        results += _alter_all(ctx, part, times, validate_only)
    return results


def _alter_all(
    ctx: Context, part: list[Change], times: Mapping[tuple[int, str], int], validate_only: bool
) -> list[AlterResult]:
    allowed: dict[Topic, dict[str, str]] = {}
    results: list[AlterResult] = []
    for change in part:
        try:
            if times[change.resource_type, change.resource_name] > 1:
                raise TopicRefused(errors.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_names(change)
            if change.resource_type not in (TOPIC_RESOURCE, METRICS_RESOURCE, GROUP_RESOURCE):
                _refuse_others(ctx, change)  # Kafka: refuses these before it asks for permission.
            if denied := denial(ctx, Operation.ALTER_CONFIGS, change.resource_type, change.resource_name):
                results.append(denied)
                continue
            if change.resource_type == TOPIC_RESOURCE:
                topic, configs = _decide_topic(ctx.cluster, change)
                if configs != topic.configs:
                    allowed[topic] = configs
            else:
                _refuse_others(ctx, change)
            results.append(DONE)
        except TopicRefused as e:
            results.append(AlterResult(e.code, str(e)))
    if allowed and not validate_only:
        try:
            _commit(ctx, allowed)
        except StorageFailed as e:
            failed = AlterResult(errors.KAFKA_STORAGE_ERROR, str(e))
            results = [failed if result is DONE else result for result in results]
    return results


def _commit(ctx: Context, allowed: Mapping[Topic, dict[str, str]]) -> None:
    draft = ctx.cluster.draft()
    for topic, configs in allowed.items():
        draft.put(draft.topics[topic.name]._replace(configs=configs))
    ctx.cluster.commit(draft, ctx.now_ms)


def _check_names(change: Change) -> None:
    if len(set(change.names)) < len(change.names):
        raise TopicRefused(errors.INVALID_REQUEST, "Error due to duplicate config keys")
    if change.names_without_value:
        names = ", ".join(change.names_without_value)
        raise TopicRefused(errors.INVALID_REQUEST, f"Null value not supported for : {names}")


def _decide_topic(cluster: Cluster, change: Change) -> tuple[Topic, dict[str, str]]:
    name = change.resource_name
    if not name:
        raise TopicRefused(errors.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    topic = cluster.topics.get(name)
    configs = change.new_configs(topic.configs if topic else {})
    try:
        check_topic_settings(configs)
    except ValueError as e:
        raise TopicRefused(errors.INVALID_CONFIG, str(e)) from None
    too_long = next((key for key, value in configs.items() if len(value) > MAX_VALUE_LENGTH), None)
    if too_long is not None:
        raise TopicRefused(errors.INVALID_CONFIG, f"{too_long} has a value of more than {MAX_VALUE_LENGTH} characters")
    if topic is None:
        raise TopicRefused(errors.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    # Differs: Kafka accepts settings for its internal topics that make it forget transactions or offsets. Fencepost
    # refuses a `cleanup.policy` other than `compact` for them.
    if topic.is_internal:
        check_internal_settings(cluster.config, name, configs)
    return topic, configs


def _refuse_others(ctx: Context, change: Change) -> None:
    if change.resource_type == BROKER_RESOURCE:
        _check_broker(ctx, change)
    elif change.resource_type not in (METRICS_RESOURCE, GROUP_RESOURCE):
        raise TopicRefused(errors.INVALID_REQUEST, f"Unknown resource type {change.resource_type}")
    elif change.new_configs({}):
        # Differs: Kafka has settings for groups and for client metrics. Fencepost has none, and refuses to change them.
        raise TopicRefused(
            errors.INVALID_REQUEST,
            f"resource {change.resource_name} of type {change.resource_type} has no settings on this broker: "
            "only topics (type 2) have settings",
        )


def _check_broker(ctx: Context, change: Change) -> None:
    if change.resource_name:
        _check_broker_id(ctx, change.resource_name)
    names = sorted(change.new_configs({}))
    if names:
        # Differs: Kafka can change some broker settings while it runs, and accepts unknown names. Fencepost takes its
        # settings at the start only.
        known = "" if set(names) <= SETTINGS.keys() else "; not all of them are settings of this broker"
        raise TopicRefused(
            errors.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(names)}]{known}. The broker takes its settings "
            "when it starts (--set name=value, or --config FILE); topics have settings of their own",
        )


def _check_broker_id(ctx: Context, name: str) -> None:
    if not _INTEGER.fullmatch(name):
        raise TopicRefused(errors.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != ctx.node.node_id:
        raise TopicRefused(
            errors.INVALID_REQUEST, f"Unexpected broker id, expected {ctx.node.node_id}, but received {name}"
        )


def list_parts(cluster: Cluster, configs: Mapping[str, str], name: str) -> list[str]:
    """The words of a topic setting that is a list: its own, else the broker's."""
    fallback = cluster.config.for_topic({}, name) if name in TOPIC_SETTINGS else ""
    text = configs.get(name, str(fallback))
    return [word.strip() for word in text.split(",") if word.strip()]
