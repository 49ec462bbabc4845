"""The documents of `fencepost topic`: which topics there are, and how far each partition of one can be read."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.configs import DYNAMIC_TOPIC, ShownConfig
from fencepost.client.admin.topics import TopicLayout
from fencepost.diagnose.snapshot import Ends


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    topic: str
    partition_count: int
    replication_factor: int
    is_internal: bool
    # Partitions without a leader, and partitions with fewer copies in sync than they should have.
    leaderless_count: int
    under_replicated_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicList:
    topics: tuple[TopicRow, ...]
    # Internal topics that are not shown.
    hidden_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    name: str
    value: str | None
    is_own: bool  # Set for this topic; other values come from the brokers.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionRow:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    # None: the leader did not say.
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    topic: str
    topic_id: str
    is_internal: bool
    replication_factor: int
    partitions: tuple[TopicPartitionRow, ...]
    settings: tuple[TopicSetting, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """The answer to an order to create or to delete a topic."""

    topic: str
    # `created`, `deleted` or `refused`; `exists` or `missing` if the caller accepts them.
    result: str
    partition_count: int | None = None
    replication_factor: int | None = None
    # Why it was refused.
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChanges:
    topics: tuple[TopicChange, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """One topic: its layout, and the answers of the leaders of its partitions."""

    layout: TopicLayout
    log_starts: Mapping[NamedPartition, int] = field(default_factory=dict)
    ends: Mapping[NamedPartition, Ends] = field(default_factory=dict)
    configs: tuple[ShownConfig, ...] = ()
    problems: tuple[str, ...] = ()


def diagnose_topics(layouts: Iterable[TopicLayout], shows_internal: bool = False) -> TopicList:
    rows = [
        TopicRow(
            topic=layout.name,
            partition_count=len(layout.partitions),
            replication_factor=layout.replication_factor,
            is_internal=layout.is_internal,
            leaderless_count=sum(p.leader < 0 for p in layout.partitions),
            under_replicated_count=sum(len(p.in_sync) < len(p.replicas) for p in layout.partitions),
        )
        for layout in sorted(layouts)
    ]
    shown = tuple(row for row in rows if shows_internal or not row.is_internal)
    return TopicList(topics=shown, hidden_count=len(rows) - len(shown))


def change_of_existing(name: str, layout: TopicLayout | None) -> TopicChange:
    """The answer for a topic that was there already; None if it has been deleted since."""
    if layout is None:
        return TopicChange(topic=name, result="exists")
    return TopicChange(
        topic=name,
        result="exists",
        partition_count=len(layout.partitions),
        replication_factor=layout.replication_factor,
    )


def differences(
    changes: Iterable[TopicChange], partition_count: int | None, replication_factor: int | None
) -> tuple[str, ...]:
    """How topics that were there already differ from what was asked for; None: anything was."""
    return tuple(
        f"{change.topic} exists with {what} {there}, not {asked}"
        for change in changes
        if change.result == "exists"
        for what, there, asked in (
            ("partition count", change.partition_count, partition_count),
            ("replication factor", change.replication_factor, replication_factor),
        )
        if asked is not None and there is not None and there != asked
    )


def diagnose_topic(snapshot: TopicSnapshot, shows_all_settings: bool = False) -> TopicDescription:
    layout = snapshot.layout
    rows = []
    for p in layout.partitions:
        where = NamedPartition(layout.name, p.partition)
        ends = snapshot.ends.get(where)
        rows.append(
            TopicPartitionRow(
                partition=p.partition,
                leader=p.leader if p.leader >= 0 else None,
                replicas=p.replicas,
                in_sync=p.in_sync,
                log_start_offset=snapshot.log_starts.get(where),
                last_stable_offset=ends.last_stable_offset if ends is not None else None,
                high_watermark=ends.high_watermark if ends is not None else None,
            )
        )
    settings = (TopicSetting(name=c.name, value=c.value, is_own=c.source == DYNAMIC_TOPIC) for c in snapshot.configs)
    return TopicDescription(
        topic=layout.name,
        topic_id=kafka_text(layout.topic_id),
        is_internal=layout.is_internal,
        replication_factor=layout.replication_factor,
        partitions=tuple(rows),
        settings=tuple(s for s in settings if s.is_own or shows_all_settings),
        problems=snapshot.problems,
    )


def kafka_text(topic_id: bytes) -> str:
    """A topic id as Kafka's own tools print it."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")
