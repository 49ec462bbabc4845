"""How groups and offsets go: on request, with their topic, or because their time is over.

Each function is a decision (see `decision.py`) that yields tombstones. Follows Kafka's OffsetMetadataManager and
OffsetExpirationCondition; KIP-211 and KIP-496.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.group.classic.group import CONSUMER_PROTOCOL_TYPE, EMPTY, STABLE, ClassicGroup
from fencepost.machines.group.classic.requests import GroupChange
from fencepost.machines.group.consumer.group import ConsumerGroup, tombstones
from fencepost.machines.group.decision import Decision, LogRecord
from fencepost.machines.group.offsets import NO_TIMESTAMP, CommittedOffset, OffsetRecord
from fencepost.machines.group.shard import AnyGroup, GroupShard
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition


class OffsetDeletion(NamedTuple):
    """The answer to OffsetDelete: an error for all, or one for each partition."""

    error_code: int
    partition_errors: tuple[int, ...] = ()


def delete_group(shard: GroupShard, group_id: str) -> Decision[int]:
    """Answer DeleteGroups: only a group without members goes, and its offsets with it."""
    group = shard.find(group_id)
    if group is None:
        return errors.GROUP_ID_NOT_FOUND
    if not group.is_empty():
        return errors.NON_EMPTY_GROUP
    error = yield [*shard.offsets.decide_delete(group_id), *_end_of(group)]
    return error


def delete_offsets(shard: GroupShard, group_id: str, partitions: list[TopicPartition]) -> Decision[OffsetDeletion]:
    """Answer OffsetDelete: offsets stay while consumers of the group read the topic."""
    group = shard.find(group_id)
    if group is None:
        return OffsetDeletion(errors.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty() and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return OffsetDeletion(errors.NON_EMPTY_GROUP)
    codes = tuple(
        errors.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic) else errors.NONE for topic, _ in partitions
    )
    free = [partition for partition, code in zip(partitions, codes, strict=True) if not code]
    error = yield shard.offsets.decide_delete(group_id, free)
    return OffsetDeletion(error, codes)


def delete_topics(shard: GroupShard, topics: set[str]) -> Decision[int]:
    """The topics are deleted: so are all groups' offsets of them."""
    error = yield shard.offsets.decide_topics_deleted(topics)
    return error


def clean_up(shard: GroupShard, retention_ms: int, now_ms: int) -> Decision[int]:
    """Delete expired offsets, and groups that have neither members nor offsets. Called every now and then."""
    records: list[LogRecord] = []
    groups: list[AnyGroup] = [*shard.classic.values(), *shard.consumer.values()]
    for group in groups:
        expired = _decide_expired(shard, group, retention_ms, now_ms)
        records += expired
        has_offsets = len(shard.offsets.committed(group.group_id)) > len(expired)
        is_awaited = isinstance(group, ClassicGroup) and bool(group.pending_members)
        if group.is_empty() and not (has_offsets or is_awaited or shard.offsets.has_open_txn(group.group_id)):
            records += _end_of(group)
    error = yield records
    return error


def _end_of(group: AnyGroup) -> list[LogRecord]:
    """The records that end a group."""
    if isinstance(group, ConsumerGroup):
        return [*tombstones(group)]
    return [GroupChange(group.group_id, None)]


def _decide_expired(shard: GroupShard, group: AnyGroup, retention_ms: int, now_ms: int) -> list[OffsetRecord]:
    """Tombstones for the offsets of a group that were not needed for the retention time."""
    offsets = shard.offsets
    return [
        OffsetRecord(group.group_id, topic, partition, None)
        for (topic, partition), stored in offsets.committed(group.group_id).items()
        if not group.is_subscribed_to(topic)
        and _is_expired(group, stored, retention_ms, now_ms)
        and not offsets.is_unstable(group.group_id, topic, partition)
    ]


def _is_expired(group: AnyGroup, stored: CommittedOffset, retention_ms: int, now_ms: int) -> bool:
    since_ms = _retained_since(group, stored)
    if since_ms is None:
        return False
    if stored.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= stored.expire_timestamp
    return now_ms - since_ms >= retention_ms


def _retained_since(group: AnyGroup, stored: CommittedOffset) -> int | None:
    """When the retention time of an offset began; None while it does not run."""
    if isinstance(group, ConsumerGroup):
        return stored.commit_timestamp
    if group.protocol_type is None:
        return stored.commit_timestamp  # The group never had members: it consists of its offsets.
    if group.state is EMPTY:
        return stored.commit_timestamp if group.state_timestamp_ms is None else group.state_timestamp_ms
    knows_topics = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.subscribed_topics is not None
    return stored.commit_timestamp if group.state is STABLE and knows_topics else None
