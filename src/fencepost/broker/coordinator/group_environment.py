"""The settings and topics of the cluster, as the group machines see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fencepost.broker.config import Config
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.group import TopicInfo

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster


def group_config(settings: Config) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=settings["group.min.session.timeout.ms"],
        group_max_session_timeout_ms=settings["group.max.session.timeout.ms"],
        group_max_size=settings["group.max.size"],
        group_initial_rebalance_delay_ms=settings["group.initial.rebalance.delay.ms"],
        offset_metadata_max_bytes=settings["offset.metadata.max.bytes"],
        offsets_retention_ms=settings["offsets.retention.minutes"] * 60_000,
        consumer_session_timeout_ms=settings["group.consumer.session.timeout.ms"],
        consumer_heartbeat_interval_ms=settings["group.consumer.heartbeat.interval.ms"],
        consumer_max_size=settings["group.consumer.max.size"],
        consumer_assignors=tuple(settings["group.consumer.assignors"].split(",")),
        consumer_assignment_interval_ms=settings["group.consumer.assignment.interval.ms"],
        consumer_migration_policy=settings["group.consumer.migration.policy"],
    )


class ClusterTopics:
    """The cluster's topics, as consumer groups see them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.topics_version

    def by_name(self, name: str) -> TopicInfo | None:
        topic = self._cluster.topics.get(name)
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, topic.partition_count)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, topic.partition_count)

    def names(self) -> Iterable[str]:
        return self._cluster.topics
