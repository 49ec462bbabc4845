"""Asks about topics: their layout on the brokers, their settings, and the offsets of their partitions."""

from __future__ import annotations

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.configs import ShownConfig, describe_topic_configs
from fencepost.client.admin.partitions import EARLIEST, list_offsets
from fencepost.client.admin.topics import describe_layouts
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.diagnose.collect.look import ends_of
from fencepost.diagnose.topics import TopicSnapshot
from fencepost.spelling import similar_to


def collect_topic(client: KafkaClient, topic: str) -> TopicSnapshot | None:
    """One topic; None if it does not exist."""
    layout = describe_layouts(client, [topic]).get(topic)
    if layout is None:
        return None
    partitions = [NamedPartition(topic, p.partition) for p in layout.partitions]
    starts = list_offsets(client, partitions, timestamp=EARLIEST)
    ends = ends_of(client, list(starts.found))
    configs: tuple[ShownConfig, ...] = ()
    problems = [*starts.problems, *ends.problems]
    try:
        configs = describe_topic_configs(client, topic)
    except ClientError as e:  # This question needs a permission of its own.
        problems.append(f"the settings of {topic} are unknown: {e}")
    return TopicSnapshot(
        layout=layout, log_starts=starts.found, ends=ends.found, configs=configs, problems=tuple(problems)
    )


def collect_similar(client: KafkaClient, topic: str) -> tuple[str, ...]:
    """Names of topics that look like one that does not exist."""
    return similar_to(topic, describe_layouts(client))
