"""Who may commit or fetch offsets of a group, and the records of a commit (OffsetCommit, TxnOffsetCommit, OffsetFetch).

Follows Kafka's OffsetMetadataManager; KIP-447 and KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.machines.group.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.group import ConsumerGroup
from fencepost.machines.group.decision import Decision
from fencepost.machines.group.offsets import NO_TIMESTAMP, NO_TOPIC_ID, CommittedOffset, OffsetRecord
from fencepost.machines.group.shard import GroupShard
from fencepost.protocol import errors

NO_RETENTION_TIME = -1
MAX_TIMESTAMP = 2**63 - 1


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit or TxnOffsetCommit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_timestamp: int = NO_TIMESTAMP
    topic_id: bytes = NO_TOPIC_ID


class Committer(NamedTuple):
    """The client that commits. The defaults are for a client that uses the group only to keep its offsets."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def claims_membership(self) -> bool:
        return self.generation_id >= 0 or self.member_id != "" or self.group_instance_id is not None


class CommitDecision(NamedTuple):
    """`error_code` is for every partition; if it is 0, each has its own in `partition_errors`."""

    error_code: int
    partition_errors: tuple[int, ...] = ()
    records: tuple[OffsetRecord, ...] = ()


def offset_commit(
    shard: GroupShard,
    config: GroupConfig,
    group_id: str,
    committer: Committer,
    asked: Iterable[OffsetToCommit],
    *,
    version: int,
    now_ms: int,
    retention_time_ms: int = NO_RETENTION_TIME,
) -> Decision[CommitDecision]:
    """Answer OffsetCommit, v0-10. A member's commit keeps its session alive.

    `retention_time_ms` is the request's own, which clients could ask for before v5.
    """
    group = shard.find(group_id)
    if isinstance(group, ConsumerGroup):
        decided = _decide_consumer_commit(group, committer, asked, version, config, now_ms)
    else:
        error = _commit_error(group, committer, version)
        if error:
            return CommitDecision(error)
        if group is not None and group.state in (STABLE, PREPARING_REBALANCE):
            group.expect_heartbeat(group.members[committer.member_id], now_ms)
        expire_ms = (
            NO_TIMESTAMP if retention_time_ms == NO_RETENTION_TIME else min(now_ms + retention_time_ms, MAX_TIMESTAMP)
        )
        decided = _decide_records(group_id, asked, expire_ms, config, now_ms)
    if decided.records:
        error = yield decided.records
        if error:
            return CommitDecision(error)
    return decided


def txn_offset_commit(
    shard: GroupShard,
    config: GroupConfig,
    group_id: str,
    committer: Committer,
    asked: Iterable[OffsetToCommit],
    *,
    now_ms: int,
) -> Decision[CommitDecision]:
    """Answer TxnOffsetCommit, v0-5, once the group's partition is known to be in the transaction.

    Members are fenced by their generation (KIP-447), whatever the state of the group.
    """
    if not group_id:
        return CommitDecision(errors.INVALID_GROUP_ID)
    group = shard.find(group_id)
    if isinstance(group, ConsumerGroup):
        decided = _decide_consumer_commit(group, committer, asked, None, config, now_ms)
    else:
        error = _txn_commit_error(group, committer)
        if error:
            return CommitDecision(error)
        decided = _decide_records(group_id, asked, NO_TIMESTAMP, config, now_ms)
    if decided.records:
        error = yield decided.records
        if error:
            return CommitDecision(error)
    return decided


def _decide_consumer_commit(
    group: ConsumerGroup,
    committer: Committer,
    asked: Iterable[OffsetToCommit],
    version: int | None,
    config: GroupConfig,
    now_ms: int,
) -> CommitDecision:
    """A commit to a consumer group. `version` is that of OffsetCommit; None for TxnOffsetCommit.

    A member may send an earlier epoch, if it has owned the partitions since then (KIP-1251).
    """
    wanted = list(asked)
    is_transactional = version is None
    is_free = not group.members or (is_transactional and not committer.claims_membership())
    if committer.generation_id < 0 and is_free:
        return _decide_records(group.group_id, wanted, NO_TIMESTAMP, config, now_ms)
    member = group.members.get(committer.member_id)
    if member is None:
        return CommitDecision(errors.UNKNOWN_MEMBER_ID)
    if member.classic is None and version is not None and version < 9:
        return CommitDecision(errors.UNSUPPORTED_VERSION)
    stale = errors.STALE_MEMBER_EPOCH if member.classic is None else errors.ILLEGAL_GENERATION
    if is_transactional:
        stale = errors.ILLEGAL_GENERATION  # Kafka: TxnOffsetCommit up to v5 has no other code.
    if committer.generation_id > member.epoch:
        return CommitDecision(stale)
    if committer.generation_id < member.epoch:
        epochs = [member.epoch_of((offset.topic_id, offset.partition)) for offset in wanted]
        if any(epoch is None or committer.generation_id < epoch for epoch in epochs):
            return CommitDecision(stale)
    return _decide_records(group.group_id, wanted, NO_TIMESTAMP, config, now_ms)


def _commit_error(group: ClassicGroup | None, committer: Committer, version: int) -> int:
    if group is None and committer.generation_id >= 0 and version >= 9:
        return errors.GROUP_ID_NOT_FOUND
    error = _txn_commit_error(group, committer)
    if error or group is None or (committer.generation_id < 0 and group.state is EMPTY):
        return error
    if not committer.claims_membership():
        # A client that is not a member may commit only while the group has no members.
        return errors.UNKNOWN_MEMBER_ID
    if group.state is COMPLETING_REBALANCE:
        # The member knows the new generation, but not its assignment.
        return errors.REBALANCE_IN_PROGRESS
    return errors.NONE


def _txn_commit_error(group: ClassicGroup | None, committer: Committer) -> int:
    """The checks of a transactional commit, which a plain commit has too."""
    if group is None:
        return errors.NONE if committer.generation_id < 0 else errors.ILLEGAL_GENERATION
    if not committer.claims_membership() or (committer.generation_id < 0 and group.state is EMPTY):
        return errors.NONE
    error = group.member_error(committer.member_id, committer.group_instance_id)
    if error:
        return error
    return errors.NONE if committer.generation_id == group.generation else errors.ILLEGAL_GENERATION


def _decide_records(
    group_id: str, asked: Iterable[OffsetToCommit], expire_timestamp: int, config: GroupConfig, now_ms: int
) -> CommitDecision:
    codes: list[int] = []
    records: list[OffsetRecord] = []
    for topic, partition, offset, leader_epoch, metadata, commit_timestamp, topic_id in asked:
        if metadata and _java_length(metadata) > config.offset_metadata_max_bytes:
            codes.append(errors.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(errors.NONE)
        at_ms = now_ms if commit_timestamp == NO_TIMESTAMP else commit_timestamp
        value = CommittedOffset(offset, leader_epoch, metadata or "", at_ms, expire_timestamp, topic_id)
        records.append(OffsetRecord(group_id, topic, partition, value))
    return CommitDecision(errors.NONE, tuple(codes), tuple(records))


def _java_length(text: str) -> int:
    """Kafka: `offset.metadata.max.bytes` is compared with a Java string's length, in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def offset_fetch_error(shard: GroupShard, group_id: str, member_id: str | None, member_epoch: int) -> int:
    """Whether an OffsetFetch (v9) comes from the member of a consumer group that it names."""
    group = shard.consumer.get(group_id)
    if group is None or (member_id is None and member_epoch < 0):
        return errors.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return errors.UNKNOWN_MEMBER_ID
    if member.epoch != member_epoch:
        return errors.STALE_MEMBER_EPOCH if member.classic is None else errors.ILLEGAL_GENERATION
    return errors.NONE
