"""A topic as the broker serves it, what its settings mean for its partitions and logs, and the internal topics.

Below are the rules which topics may be created, grown and configured: Kafka's, and the limits of this broker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from fencepost.broker.config import Config, check_topic_settings
from fencepost.broker.metadata import MetadataDraft
from fencepost.machines.log.interface import LogConfig
from fencepost.machines.partition.partition import Partition
from fencepost.protocol import errors

TXN_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TXN_TOPIC, OFFSETS_TOPIC})
# The prefix of the settings of each internal topic.
SETTINGS_PREFIX = {TXN_TOPIC: "transaction.state.log", OFFSETS_TOPIC: "offsets.topic"}

MAX_PARTITIONS_PER_TOPIC = 10_000
MAX_PARTITIONS_PER_REQUEST = 10_000  # Kafka: has the same limit.
# A partition takes about 1.5 KB of memory before its first record.
MAX_PARTITIONS = 100_000
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Topic:
    __slots__ = ("configs", "name", "partition_count", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, configs: Mapping[str, str]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configs = configs
        self.partition_count = 0
        self.partitions: dict[int, Partition] = {}  # Those that this node leads, by index.

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def apply_settings(config: Config, topic: Topic) -> None:
    """Give the partitions of a topic its settings, or those of the broker where it has none."""

    def setting(name: str) -> Any:
        return config.for_topic(topic.configs, name)

    is_compacted = "compact" in cleanup_policy(config, topic.configs)
    for partition in topic.partitions.values():
        partition.max_message_bytes = setting("max.message.bytes")
        partition.log_append_time = setting("message.timestamp.type") == "LogAppendTime"
        partition.timestamp_before_max_ms = setting("message.timestamp.before.max.ms")
        partition.timestamp_after_max_ms = setting("message.timestamp.after.max.ms")
        partition.compacted = is_compacted


def cleanup_policy(config: Config, configs: Mapping[str, str]) -> frozenset[str]:
    """`delete`, `compact`, both or neither."""
    policy: str = config.for_topic(configs, "cleanup.policy")
    return frozenset(policy.split(","))


def log_config(config: Config, name: str, configs: Mapping[str, str]) -> LogConfig:
    def setting(name: str) -> Any:
        return config.for_topic(configs, name)

    is_compacted = "compact" in cleanup_policy(config, configs)
    segment_ms = setting("segment.ms")
    if is_compacted:
        # Kafka: only a closed segment can be cleaned, so a segment is closed when it has to be cleaned.
        segment_ms = min(segment_ms, setting("max.compaction.lag.ms"))
    keeps_state = name in INTERNAL_TOPICS
    return LogConfig(setting("segment.bytes"), segment_ms, setting("index.interval.bytes"), is_compacted, keeps_state)


class TopicRefused(Exception):
    """A topic cannot be created or changed: Kafka's code, and a sentence for the client."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_topic_name(name: str) -> None:
    if name in (".", "..") or not _LEGAL_TOPIC.fullmatch(name):
        raise TopicRefused(
            errors.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} is not allowed: 1 to 249 letters, digits, '.', '_' or '-', and neither '.' nor '..'",
        )


def check_new_topic(
    draft: MetadataDraft, config: Config, name: str, partition_count: int, configs: Mapping[str, str]
) -> None:
    check_topic_name(name)
    if name in draft.topics:
        raise TopicRefused(errors.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if not 1 <= partition_count <= MAX_PARTITIONS_PER_TOPIC:
        raise TopicRefused(
            errors.INVALID_PARTITIONS,
            f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, {partition_count} were asked for",
        )
    try:
        check_topic_settings(configs)
    except ValueError as e:
        raise TopicRefused(errors.INVALID_CONFIG, str(e)) from None
    if name in INTERNAL_TOPICS:
        # Differs: Kafka lets a client create its internal topics with any number of partitions and any settings.
        # Fencepost accepts only the number of partitions in its settings, and refuses harmful settings.
        own_count = config[f"{SETTINGS_PREFIX[name]}.num.partitions"]
        if partition_count != own_count:
            raise TopicRefused(
                errors.INVALID_PARTITIONS,
                f"{name} has {own_count} partitions on this broker, {partition_count} were asked for",
            )
        check_internal_settings(config, name, configs)
    else:
        check_room(draft, partition_count)


def check_replication_factor(config: Config, factor: int, brokers: int) -> int:
    """The replication factor of a new topic, if a client asks for this one on a cluster of this many brokers.

    Clients see that many replicas. There is one copy of the bytes.
    """
    if factor == -1:
        return default_replication_factor(config, brokers)
    if factor < 1:
        raise TopicRefused(
            errors.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor > brokers and config["fencepost.replication.factor"] != "ignore":
        # Kafka: has the same message.
        raise TopicRefused(
            errors.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {brokers} broker(s) are registered.",
        )
    return min(factor, brokers)


def default_replication_factor(config: Config, brokers: int) -> int:
    # Differs: Kafka creates no topic while it has fewer brokers than `default.replication.factor`. Fencepost creates it
    # with a replica for each broker.
    return min(int(config["default.replication.factor"]), brokers)


def check_internal_settings(config: Config, name: str, configs: Mapping[str, str]) -> None:
    if config.for_topic(configs, "cleanup.policy") != "compact":
        raise TopicRefused(
            errors.INVALID_CONFIG,
            f"cleanup.policy of {name} must be compact: else the broker would forget transactions or offsets",
        )


def check_room(draft: MetadataDraft, more_partitions: int) -> None:
    if draft.partition_count + more_partitions > MAX_PARTITIONS:
        raise TopicRefused(
            errors.POLICY_VIOLATION,
            f"{more_partitions} partitions more than {draft.partition_count} would be above {MAX_PARTITIONS}",
        )


class TopicNames:
    """The names of all topics, as they are when the first question is asked: before a request creates any.

    Kafka: of names that collide with each other only, a request may create all.
    """

    def __init__(self, existing: Collection[str]) -> None:
        self._existing = existing
        self._by_metric_name: dict[str, str] | None = None

    def colliding(self, name: str) -> str | None:
        """The existing topic that a new one of this name would collide with."""
        if self._by_metric_name is None:
            self._by_metric_name = {_metric_name(each): each for each in self._existing}
        return None if name in self._existing else self._by_metric_name.get(_metric_name(name))


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
