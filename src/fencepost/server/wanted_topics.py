"""`--topic NAME:PARTITIONS`: topics that exist as soon as clients can connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fencepost.broker.cluster import Cluster
from fencepost.broker.topic_rules import TopicRefused
from fencepost.counting import counted


class TopicDiffers(Exception):
    """A topic cannot be created, or exists with another number of partitions."""


def ensure_topics(cluster: Cluster, wanted: Mapping[str, int | None], now_ms: int) -> Iterator[str]:
    """Create the topics that do not exist; yield a line for each of them. Raises TopicDiffers."""
    for name, partition_count in wanted.items():
        topic = cluster.topics.get(name)
        if topic is None:
            count = cluster.config["num.partitions"] if partition_count is None else partition_count
            try:
                cluster.create_topic(name, count, {}, now_ms)
            except TopicRefused as e:
                raise TopicDiffers(
                    f"--topic {name}:{count}: the topic cannot be created: {e}\n\n"
                    "hint: choose another name, or another number of partitions"
                ) from None
            yield f"created the topic {name} with {counted(count, 'partition')}"
        elif partition_count not in (None, topic.partition_count):
            raise TopicDiffers(
                f"--topic {name}:{partition_count}: the topic exists with {topic.partition_count} partitions\n\n"
                f"hint: start with --topic {name}:{topic.partition_count}; records stay on their partitions, so the "
                "number is not changed at a start"
            )
