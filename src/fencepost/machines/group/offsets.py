"""The offsets that groups have committed, of one partition of `__consumer_offsets`.

An offset committed in a transaction is pending, under its producer id, until the marker: COMMIT makes it
the group's offset unless a later record already did, ABORT drops it. While it is pending, a fetch that
asks for stable offsets is refused, and nothing of the partition expires.

`decide_*` read and give records; `apply_offset` and `apply_marker` are the only changes, and loading the
log is the same calls in order. Follows Kafka's OffsetMetadataManager; KIP-98, 211 and 447.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.machines.group.classic.group import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    STABLE,
    Group,
)
from fencepost.machines.group.consumer.group import ConsumerGroup
from fencepost.protocol import errors

TopicPartition = tuple[str, int]

NO_TOPIC_ID = bytes(16)
NO_TIMESTAMP = -1
MAX_TIMESTAMP = 2**63 - 1


class CommittedOffset(NamedTuple):
    """An offset as it is kept, with the fields of Kafka's OffsetCommitValue."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP  # Only commits of v2-4 with a retention time have one.
    topic_id: bytes = NO_TOPIC_ID
    # Where in `__consumer_offsets` its record is: the higher of two is the later.
    record_offset: int = -1


class OffsetRecord(NamedTuple):
    """One record for `__consumer_offsets`; without a value it is a tombstone."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


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
    """Who commits. The defaults are those of a client that uses the group for its offsets only."""

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


class FetchedOffset(NamedTuple):
    error_code: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


NOT_COMMITTED = FetchedOffset(errors.NONE)
UNSTABLE = FetchedOffset(errors.UNSTABLE_OFFSET_COMMIT)


class Offsets:
    """Committed and pending offsets by group."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Producer id -> group -> partition -> offset. No empty dict is kept at any level.
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        self._open_txns: dict[str, set[int]] = {}  # Group -> producer ids with a pending offset of it.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Offsets):
            return NotImplemented
        return self._committed == other._committed and self._pending == other._pending

    # Questions.

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._committed.get(group_id, {})

    def has_open_txn(self, group_id: str) -> bool:
        return group_id in self._open_txns

    def group_ids(self) -> set[str]:
        return self._committed.keys() | self._open_txns.keys()

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        open_txns = self._open_txns.get(group_id, ())
        return any((topic, partition) in self._pending[pid][group_id] for pid in open_txns)

    def fetch(
        self, group_id: str, topic: str, partition: int, require_stable: bool, topic_id: bytes = NO_TOPIC_ID
    ) -> FetchedOffset:
        """One committed offset, as OffsetFetch reports it."""
        if require_stable and self.is_unstable(group_id, topic, partition):
            return UNSTABLE
        stored = self.committed(group_id).get((topic, partition))
        if stored is None or _is_of_another_topic(stored.topic_id, topic_id):
            return NOT_COMMITTED
        return FetchedOffset(errors.NONE, stored.offset, stored.leader_epoch, stored.metadata)

    def fetch_all(self, group_id: str, require_stable: bool) -> dict[str, list[tuple[int, FetchedOffset]]]:
        """Every committed offset of a group: topic -> (partition, offset)."""
        topics: dict[str, list[tuple[int, FetchedOffset]]] = {}
        for topic, partition in self.committed(group_id):
            fetched = self.fetch(group_id, topic, partition, require_stable)
            topics.setdefault(topic, []).append((partition, fetched))
        return topics

    def decide_delete(self, group_id: str, partitions: Iterable[TopicPartition] | None = None) -> list[OffsetRecord]:
        """Tombstones for these partitions of a group (None: all), where there is an offset to bury."""
        known = dict.fromkeys(self.committed(group_id))
        for producer_id in sorted(self._open_txns.get(group_id, ())):
            known.update(dict.fromkeys(self._pending[producer_id][group_id]))
        wanted = known if partitions is None else dict.fromkeys(tp for tp in partitions if tp in known)
        return [OffsetRecord(group_id, topic, partition, None) for topic, partition in wanted]

    def decide_topics_deleted(self, topics: set[str]) -> list[OffsetRecord]:
        """Tombstones for every group's offsets of topics that are no more."""
        records: list[OffsetRecord] = []
        for group_id in sorted(self.group_ids()):
            records += [record for record in self.decide_delete(group_id) if record.topic in topics]
        return records

    def decide_expired(self, group: Group | ConsumerGroup, retention_ms: int, now_ms: int) -> list[OffsetRecord]:
        """Tombstones for the offsets of a group that nobody has needed for the retention time."""
        return [
            OffsetRecord(group.group_id, topic, partition, None)
            for (topic, partition), stored in self.committed(group.group_id).items()
            if not group.is_subscribed_to(topic)
            and _is_expired(group, stored, retention_ms, now_ms)
            and not self.is_unstable(group.group_id, topic, partition)
        ]

    # Changes.

    def apply_offset(self, record: OffsetRecord, producer_id: int | None, record_offset: int) -> None:
        """Take one record in. `producer_id` is that of its batch if the batch is transactional, else None."""
        group_id, key = record.group_id, (record.topic, record.partition)
        if record.value is None:
            self._forget(group_id, key)
            return
        value = record.value._replace(record_offset=record_offset)
        if producer_id is None:
            self._committed.setdefault(group_id, {})[key] = value
        else:
            self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[key] = value
            self._open_txns.setdefault(group_id, set()).add(producer_id)

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """End the transaction of a producer: its pending offsets count from now on, or never did."""
        for group_id, pending in self._pending.pop(producer_id, {}).items():
            self._close_txn(group_id, producer_id)
            if not commit:
                continue
            committed = self._committed.setdefault(group_id, {})
            for key, value in pending.items():
                stored = committed.get(key)
                # A plain commit may have come in between: the later record wins, as after compaction.
                if stored is None or value.record_offset > stored.record_offset:
                    committed[key] = value

    def _forget(self, group_id: str, key: TopicPartition) -> None:
        committed = self._committed.get(group_id, {})
        committed.pop(key, None)
        if not committed:
            self._committed.pop(group_id, None)
        for producer_id in list(self._open_txns.get(group_id, ())):
            pending = self._pending[producer_id][group_id]
            pending.pop(key, None)
            if not pending:
                del self._pending[producer_id][group_id]
                self._close_txn(group_id, producer_id)
            if not self._pending[producer_id]:
                del self._pending[producer_id]

    def _close_txn(self, group_id: str, producer_id: int) -> None:
        open_txns = self._open_txns[group_id]
        open_txns.remove(producer_id)
        if not open_txns:
            del self._open_txns[group_id]


def _is_of_another_topic(stored_id: bytes, asked_id: bytes) -> bool:
    """An offset of a deleted topic says nothing about a new one of the same name."""
    return NO_TOPIC_ID not in (stored_id, asked_id) and stored_id != asked_id


def decide_offset_commit(
    group_id: str,
    group: Group | ConsumerGroup | None,
    committer: Committer,
    asked: Iterable[OffsetToCommit],
    *,
    version: int,
    retention_time_ms: int,
    max_metadata: int,
    now_ms: int,
) -> CommitDecision:
    """Answer OffsetCommit, v0-10. `retention_time_ms` is the request's, -1 for the broker's own.

    A member's commit also counts as a heartbeat; that is the shard's business.
    """
    if isinstance(group, ConsumerGroup):
        return _decide_member_commit(group, committer, asked, version, max_metadata, now_ms)
    error = _commit_error(group, committer, version)
    if error:
        return CommitDecision(error)
    expire_timestamp = NO_TIMESTAMP if retention_time_ms == -1 else min(now_ms + retention_time_ms, MAX_TIMESTAMP)
    return _decide_records(group_id, asked, expire_timestamp, max_metadata, now_ms)


def decide_txn_offset_commit(
    group_id: str,
    group: Group | ConsumerGroup | None,
    committer: Committer,
    asked: Iterable[OffsetToCommit],
    *,
    max_metadata: int,
    now_ms: int,
) -> CommitDecision:
    """Answer TxnOffsetCommit, v0-5: members are fenced by generation (KIP-447), whatever the group does."""
    if isinstance(group, ConsumerGroup):
        return _decide_member_commit(group, committer, asked, None, max_metadata, now_ms)
    error = _txn_commit_error(group, committer)
    if error:
        return CommitDecision(error)
    return _decide_records(group_id, asked, NO_TIMESTAMP, max_metadata, now_ms)


def _decide_member_commit(
    group: ConsumerGroup,
    committer: Committer,
    asked: Iterable[OffsetToCommit],
    version: int | None,
    max_metadata: int,
    now_ms: int,
) -> CommitDecision:
    """A commit to a consumer group. `version` is that of OffsetCommit; None for TxnOffsetCommit.

    A member may be late by some epochs, as long as the partition has been its own since then: KIP-1251.
    """
    wanted = list(asked)
    is_transactional = version is None
    is_free = not group.members or (is_transactional and not committer.claims_membership())
    if committer.generation_id < 0 and is_free:
        return _decide_records(group.group_id, wanted, NO_TIMESTAMP, max_metadata, now_ms)
    member = group.members.get(committer.member_id)
    if member is None:
        return CommitDecision(errors.UNKNOWN_MEMBER_ID)
    if member.classic is None and version is not None and version < 9:
        return CommitDecision(errors.UNSUPPORTED_VERSION)
    stale = errors.STALE_MEMBER_EPOCH if member.classic is None else errors.ILLEGAL_GENERATION
    if is_transactional:
        stale = errors.ILLEGAL_GENERATION  # Kafka: its versions up to 5 know no other.
    if committer.generation_id > member.epoch:
        return CommitDecision(stale)
    if committer.generation_id < member.epoch:
        epochs = [member.epoch_of((offset.topic_id, offset.partition)) for offset in wanted]
        if any(epoch is None or committer.generation_id < epoch for epoch in epochs):
            return CommitDecision(stale)
    return _decide_records(group.group_id, wanted, NO_TIMESTAMP, max_metadata, now_ms)


def fetch_error(group: ConsumerGroup | None, member_id: str | None, member_epoch: int) -> int:
    """Whether a member of a consumer group may ask for offsets."""
    if group is None or (member_id is None and member_epoch < 0):
        return errors.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return errors.UNKNOWN_MEMBER_ID
    if member.epoch != member_epoch:
        return errors.STALE_MEMBER_EPOCH if member.classic is None else errors.ILLEGAL_GENERATION
    return errors.NONE


def _commit_error(group: Group | None, committer: Committer, version: int) -> int:
    if group is None and committer.generation_id >= 0 and version >= 9:
        return errors.GROUP_ID_NOT_FOUND
    error = _txn_commit_error(group, committer)
    if error or group is None or (committer.generation_id < 0 and group.state is EMPTY):
        return error
    if not committer.claims_membership():
        # Who is not a member may commit for a group only while it has none.
        return errors.UNKNOWN_MEMBER_ID
    if group.state is COMPLETING_REBALANCE:
        # It knows the new generation, but not yet what it is assigned.
        return errors.REBALANCE_IN_PROGRESS
    return errors.NONE


def _txn_commit_error(group: Group | None, committer: Committer) -> int:
    """The checks of a transactional commit; a plain one has them too."""
    if group is None:
        return errors.NONE if committer.generation_id < 0 else errors.ILLEGAL_GENERATION
    if group.state is DEAD:
        return errors.COORDINATOR_NOT_AVAILABLE
    if not committer.claims_membership() or (committer.generation_id < 0 and group.state is EMPTY):
        return errors.NONE
    error = group.member_error(committer.member_id, committer.group_instance_id)
    if error:
        return error
    return errors.NONE if committer.generation_id == group.generation else errors.ILLEGAL_GENERATION


def _decide_records(
    group_id: str, asked: Iterable[OffsetToCommit], expire_timestamp: int, max_metadata: int, now_ms: int
) -> CommitDecision:
    codes: list[int] = []
    records: list[OffsetRecord] = []
    for topic, partition, offset, leader_epoch, metadata, commit_timestamp, topic_id in asked:
        if metadata and _java_length(metadata) > max_metadata:
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


def _is_expired(group: Group | ConsumerGroup, stored: CommittedOffset, retention_ms: int, now_ms: int) -> bool:
    since_ms = _retained_since(group, stored)
    if since_ms is None:
        return False
    if stored.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= stored.expire_timestamp
    return now_ms - since_ms >= retention_ms


def _retained_since(group: Group | ConsumerGroup, stored: CommittedOffset) -> int | None:
    """When the retention time of an offset began; None while it does not run."""
    if isinstance(group, ConsumerGroup):
        return stored.commit_timestamp
    if group.protocol_type is None:
        return stored.commit_timestamp  # Nobody joins this group: its offsets are all there is of it.
    if group.state is EMPTY:
        return stored.commit_timestamp if group.state_timestamp_ms is None else group.state_timestamp_ms
    knows_topics = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.subscribed_topics is not None
    return stored.commit_timestamp if group.state is STABLE and knows_topics else None
