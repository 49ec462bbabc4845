"""The group coordinator: groups and their offsets, kept in `__consumer_offsets`, one shard per partition of it.

The rules are in `machines/group/shard.py`. Here their records are appended, replies that waited are sent, deadlines
become timers, and a transaction's marker makes its offsets count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.coordinator.loading import LatestRecord, load_latest
from fencepost.broker.internal_topics import OFFSETS_TOPIC
from fencepost.machines.group.classic.group import GroupConfig
from fencepost.machines.group.classic.requests import (
    GroupChange,
    GroupRecord,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Reply,
    Sync,
    SyncResult,
)
from fencepost.machines.group.consumer.group import TopicInfo
from fencepost.machines.group.consumer.groups import LogRecord
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from fencepost.machines.group.offsets import (
    NO_TOPIC_ID,
    CommitDecision,
    Committer,
    OffsetRecord,
    OffsetToCommit,
    TopicPartition,
)
from fencepost.machines.group.records import decode, encode, encode_offset
from fencepost.machines.group.shard import Deletion, DescribedGroup, GroupShard
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.machines.timers import Timer
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

Answer = Callable[[JoinResult | SyncResult | LeaveResult], None]
# Kafka: of every batch that this coordinator writes, with or without a producer; nobody counts on.
BASE_SEQUENCE = 0
NO_PRODUCER = -1


class _Topics:
    """The cluster's topics, as consumer groups see them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.topics_version

    def by_name(self, name: str) -> TopicInfo | None:
        topic = self._cluster.topics.get(name)
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))

    def names(self) -> Iterable[str]:
        return self._cluster.topics


class _Home:
    """A partition of `__consumer_offsets`, its shard, and the alarm for the shard's next deadline."""

    __slots__ = ("alarm", "partition", "shard")

    def __init__(self, partition: Partition, shard: GroupShard) -> None:
        self.partition = partition
        self.shard = shard
        self.alarm: Timer | None = None


class GroupCoordinator:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        config = cluster.config
        self._group_config = GroupConfig(
            group_min_session_timeout_ms=config["group.min.session.timeout.ms"],
            group_max_session_timeout_ms=config["group.max.session.timeout.ms"],
            group_max_size=config["group.max.size"],
            group_initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
            offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
            consumer_session_timeout_ms=config["group.consumer.session.timeout.ms"],
            consumer_heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
            consumer_max_size=config["group.consumer.max.size"],
            consumer_assignors=tuple(config["group.consumer.assignors"].split(",")),
            consumer_assignment_interval_ms=config["group.consumer.assignment.interval.ms"],
            consumer_migration_policy=config["group.consumer.migration.policy"],
        )
        self._topics = _Topics(cluster)
        self._homes: list[_Home] = []
        self._now_ms = 0  # Of the request or timer being handled: for records that the shard appends itself.

    # --- finding things -----------------------------------------------------------------------------------

    def partition_of(self, group_id: str, now_ms: int) -> int:
        """The partition of `__consumer_offsets` that keeps the group. Creates the topic when it is first needed."""
        if not self._homes:
            self._open(now_ms)
        return partition_for(group_id, len(self._homes))

    def _home_of(self, group_id: str, now_ms: int) -> _Home:
        self._now_ms = now_ms
        index = self.partition_of(group_id, now_ms)  # First, as it may open them.
        return self._homes[index]

    def _open(self, now_ms: int) -> None:
        topic = self._cluster.ensure_internal_topic(OFFSETS_TOPIC, now_ms)
        self._homes = [self._new_home(partition) for partition in topic.partitions]

    def _new_home(self, partition: Partition) -> _Home:
        shard = GroupShard(
            self._group_config,
            partial(self._append_group, partition),
            self._new_uuid,
            partial(self._append_records, partition),
            self._topics,
        )
        partition.on_marker = shard.apply_marker
        return _Home(partition, shard)

    def _new_uuid(self) -> str:
        raw = bytearray(self._cluster.rng.randbytes(16))
        raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # --- members ------------------------------------------------------------------------------------------

    def join(self, cmd: Join, answer: Answer, now_ms: int) -> None:
        home = self._home_of(cmd.group_id, now_ms)
        self._settle(home, home.shard.join(cmd, answer, now_ms))

    def sync(self, cmd: Sync, answer: Answer, now_ms: int) -> None:
        home = self._home_of(cmd.group_id, now_ms)
        self._settle(home, home.shard.sync(cmd, answer, now_ms))

    def leave(self, group_id: str, leavers: list[Leaver], answer: Answer, now_ms: int) -> None:
        home = self._home_of(group_id, now_ms)
        self._settle(home, home.shard.leave(group_id, leavers, answer, now_ms))

    def consumer_heartbeat(self, cmd: ConsumerHeartbeat, now_ms: int) -> HeartbeatResult:
        home = self._home_of(cmd.group_id, now_ms)
        result, replies = home.shard.consumer_heartbeat(cmd, now_ms)
        self._settle(home, replies)
        return result

    def shard_of(self, group_id: str, now_ms: int) -> GroupShard:
        """For questions that need no more than an answer: heartbeats, descriptions, committed offsets."""
        return self._home_of(group_id, now_ms).shard

    def all_groups(self) -> Iterable[DescribedGroup]:
        for home in self._homes:
            yield from home.shard.listed()

    def _settle(self, home: _Home, replies: list[Reply]) -> None:
        for reply in replies:
            reply.token(reply.result)  # type: ignore[operator]
        self._set_alarm(home)

    def _set_alarm(self, home: _Home) -> None:
        due_ms = home.shard.next_deadline_ms()
        if home.alarm is not None:
            if home.alarm.deadline_ms == due_ms and home.alarm.action is not None:
                return
            home.alarm.cancel()
            home.alarm = None
        if due_ms is not None:
            home.alarm = self._cluster.timers.at(due_ms, partial(self._expire, home))

    def _expire(self, home: _Home, now_ms: int) -> None:
        self._now_ms = now_ms
        self._settle(home, home.shard.expire(now_ms))

    def _append_group(self, partition: Partition, group_id: str, record: GroupRecord) -> int:
        return self._append_records(partition, [GroupChange(group_id, record)])

    def _append_records(self, partition: Partition, records: Sequence[LogRecord]) -> int:
        """All of them in one batch, so that a crash keeps all or none."""
        batch = encode_batch([encode(record) for record in records], self._now_ms, base_sequence=BASE_SEQUENCE)
        if len(batch) > partition.max_message_bytes:
            return errors.MESSAGE_TOO_LARGE
        try:
            partition.append_internal(batch)
        except StorageFailed:
            return errors.NOT_COORDINATOR
        return errors.NONE

    # --- offsets ------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        asked: list[OffsetToCommit],
        version: int,
        retention_time_ms: int,
        now_ms: int,
    ) -> CommitDecision:
        home = self._home_of(group_id, now_ms)
        decision = home.shard.offset_commit(
            group_id, committer, asked, version=version, retention_time_ms=retention_time_ms, now_ms=now_ms
        )
        decision = self._write_offsets(home, decision, NO_PRODUCER, NO_PRODUCER, now_ms)
        self._set_alarm(home)
        return decision

    def commit_txn_offsets(
        self,
        group_id: str,
        committer: Committer,
        asked: list[OffsetToCommit],
        producer_id: int,
        epoch: int,
        is_verified: bool,
        now_ms: int,
    ) -> CommitDecision:
        """Offsets that count once the transaction's marker says so."""
        home = self._home_of(group_id, now_ms)
        error = home.partition.check_offset_commit(producer_id, epoch, is_verified)
        if error:
            return CommitDecision(error)
        decision = home.shard.txn_offset_commit(group_id, committer, asked, now_ms=now_ms)
        return self._write_offsets(home, decision, producer_id, epoch, now_ms)

    def has_open_txn(self, group_id: str, producer_id: int, epoch: int, now_ms: int) -> bool:
        return self._home_of(group_id, now_ms).partition.has_open_txn(producer_id, epoch)

    def _write_offsets(
        self, home: _Home, decision: CommitDecision, producer_id: int, epoch: int, now_ms: int
    ) -> CommitDecision:
        if decision.error_code or not decision.records:
            return decision
        self._cluster.reach("offsets.append.before")
        batch = encode_batch(
            [encode_offset(record) for record in decision.records],
            now_ms,
            producer_id,
            epoch,
            BASE_SEQUENCE,
            transactional=producer_id != NO_PRODUCER,
        )
        try:
            base_offset = home.partition.append_internal(batch)
        except StorageFailed:
            return CommitDecision(errors.NOT_COORDINATOR)
        for delta, record in enumerate(decision.records):
            home.shard.apply_offset(record, None if producer_id == NO_PRODUCER else producer_id, base_offset + delta)
        self._cluster.reach("offsets.append.after")
        return decision

    # --- things that go away ------------------------------------------------------------------------------

    def delete_group(self, group_id: str, now_ms: int) -> int:
        home = self._home_of(group_id, now_ms)
        return self._delete(home, home.shard.delete_group(group_id), now_ms)

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition], now_ms: int) -> Deletion:
        home = self._home_of(group_id, now_ms)
        deletion = home.shard.delete_offsets(group_id, partitions)
        return deletion._replace(error_code=self._delete(home, deletion, now_ms))

    def topics_deleted(self, topics: set[str], now_ms: int) -> None:
        for home in self._homes:
            self._delete(home, home.shard.topics_deleted(topics), now_ms)

    def cleanup(self, now_ms: int) -> None:
        for home in self._homes:
            self._delete(home, home.shard.cleanup(now_ms), now_ms)

    def _delete(self, home: _Home, deletion: Deletion, now_ms: int) -> int:
        if deletion.error_code or not deletion.records:
            return deletion.error_code
        records = [encode(record) for record in deletion.records]
        try:
            batch = encode_batch(records, now_ms, base_sequence=BASE_SEQUENCE)
            base_offset = home.partition.append_internal(batch)
        except StorageFailed:
            return errors.NOT_COORDINATOR
        home.shard.apply(deletion, base_offset)
        return errors.NONE

    # --- loading ------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> None:
        self._now_ms = now_ms
        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        self._homes = [self._new_home(partition) for partition in topic.partitions] if topic else []
        for home in self._homes:
            self._load(home)
            self._settle(home, home.shard.resume(now_ms))
        interval_ms = self._cluster.config["offsets.retention.check.interval.ms"]
        self._cluster.timers.every(interval_ms, now_ms, self.cleanup)

    def _load(self, home: _Home) -> None:
        latest = load_latest(home.partition)
        for key, record in latest.in_order():
            self._apply_loaded(home.shard, key, record, None)
        for producer_id, key, record in latest.pending_in_order():
            self._apply_loaded(home.shard, key, record, producer_id)

    def _apply_loaded(self, shard: GroupShard, key: bytes, record: LatestRecord, producer_id: int | None) -> None:
        loaded = decode(key, record.value, record.offset)
        if isinstance(loaded, OffsetRecord):
            if not self._is_of_deleted_topic(loaded):
                shard.apply_offset(loaded, producer_id, record.offset)
        elif isinstance(loaded, GroupChange):
            shard.apply_group(*loaded)
        elif loaded is not None:
            shard.apply_consumer(loaded)

    def _is_of_deleted_topic(self, record: OffsetRecord) -> bool:
        """Whether its topic is gone, and the last process could not bury it, as it died or its disk was full."""
        if record.value is None or record.value.topic_id == NO_TOPIC_ID:
            return False
        topic = self._cluster.topics.get(record.topic)
        return topic is None or topic.topic_id != record.value.topic_id
