"""A topic as the broker serves it, what its settings mean for its partitions and logs, and the internal topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.broker.config import Config
from fencepost.machines.log.interface import LogConfig
from fencepost.machines.partition.partition import Partition

TXN_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TXN_TOPIC, OFFSETS_TOPIC})
# The prefix of the settings of each internal topic.
SETTINGS_PREFIX = {TXN_TOPIC: "transaction.state.log", OFFSETS_TOPIC: "offsets.topic"}


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
