"""The group coordinator: groups and their offsets, kept in `__consumer_offsets`, one shard per partition of it.

The rules are in `machines/group/`: a request or a timer becomes a decision there. Here the decision is run: the records
that it yields are appended and applied, replies are sent, and an alarm is set for the shard's next deadline. Loading
applies the same records, and then `resume` starts the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.coordinator.group_environment import ClusterTopics, group_config
from fencepost.broker.coordinator.runtime import StateLog, Writer
from fencepost.machines.group import commits, deletion
from fencepost.machines.group.classic.requests import (
    Heartbeat,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Reply,
    Sync,
    SyncResult,
)
from fencepost.machines.group.commits import CommitDecision, Committer, OffsetToCommit
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from fencepost.machines.group.decision import Answer, Decision, LogRecord, run
from fencepost.machines.group.deletion import OffsetDeletion
from fencepost.machines.group.describing import DescribedGroup, list_groups
from fencepost.machines.group.members import GroupMembers
from fencepost.machines.group.offsets import NO_TOPIC_ID, OffsetRecord
from fencepost.machines.group.records import decode, encode
from fencepost.machines.group.shard import GroupShard
from fencepost.machines.partition.partition import Partition
from fencepost.machines.timers import Timer
from fencepost.machines.txn.records import partition_for
from fencepost.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.cluster import Cluster

AnswerMember = Callable[[JoinResult | SyncResult | LeaveResult], None]


class _Home:
    """A partition of `__consumer_offsets`, the groups in it, and the alarm for their next deadline."""

    __slots__ = ("alarm", "log", "members", "shard")

    def __init__(self, log: StateLog[LogRecord], shard: GroupShard, members: GroupMembers) -> None:
        self.log = log
        self.shard = shard
        self.members = members
        self.alarm: Timer | None = None


class GroupCoordinator:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.config = group_config(cluster.config)
        self._topics = ClusterTopics(cluster)
        self._homes: list[_Home] = []

    # --- finding things -----------------------------------------------------------------------------------

    def partition_of(self, group_id: str, now_ms: int) -> int:
        """The partition of `__consumer_offsets` that keeps the group. Creates the topic when it is first needed."""
        if not self._homes:
            from fencepost.broker.cluster import OFFSETS_TOPIC

            topic = self._cluster.ensure_internal_topic(OFFSETS_TOPIC, now_ms)
            self._homes = [self._new_home(partition) for partition in topic.partitions]
        return partition_for(group_id, len(self._homes))

    def _home_of(self, group_id: str, now_ms: int) -> _Home:
        index = self.partition_of(group_id, now_ms)  # First, as it may create them.
        return self._homes[index]

    def shard_of(self, group_id: str, now_ms: int) -> GroupShard:
        """For questions that change nothing: descriptions and committed offsets."""
        return self._home_of(group_id, now_ms).shard

    def all_groups(self) -> Iterable[DescribedGroup]:
        for home in self._homes:
            yield from list_groups(home.shard)

    def _new_home(self, partition: Partition) -> _Home:
        shard = GroupShard()
        log = StateLog(partition, shard, encode, self._decode)
        return _Home(log, shard, GroupMembers(shard, self.config, self._topics, self._new_uuid))

    def _new_uuid(self) -> str:
        raw = bytearray(self._cluster.rng.randbytes(16))
        raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # --- decisions ----------------------------------------------------------------------------------------

    def _run(self, home: _Home, decision: Decision[Answer], now_ms: int, is_limited: bool = True) -> Answer:
        """Append and apply the records of a decision, and set the alarm for what it has set up."""
        answer = run(decision, partial(home.log.write, now_ms=now_ms, is_limited=is_limited))
        self._set_alarm(home)
        return answer

    def _run_and_reply(self, home: _Home, decision: Decision[list[Reply]], now_ms: int) -> None:
        _send(self._run(home, decision, now_ms))

    def _set_alarm(self, home: _Home) -> None:
        due_ms = home.members.next_deadline_ms()
        if home.alarm is not None:
            if home.alarm.deadline_ms == due_ms and home.alarm.action is not None:
                return
            home.alarm.cancel()
            home.alarm = None
        if due_ms is not None:
            home.alarm = self._cluster.timers.at(due_ms, partial(self._expire, home))

    def _expire(self, home: _Home, now_ms: int) -> None:
        self._run_and_reply(home, home.members.expire(now_ms), now_ms)

    # --- members ------------------------------------------------------------------------------------------

    def join(self, cmd: Join, answer: AnswerMember, now_ms: int) -> None:
        home = self._home_of(cmd.group_id, now_ms)
        self._run_and_reply(home, home.members.join(cmd, answer, now_ms), now_ms)

    def sync(self, cmd: Sync, answer: AnswerMember, now_ms: int) -> None:
        home = self._home_of(cmd.group_id, now_ms)
        self._run_and_reply(home, home.members.sync(cmd, answer, now_ms), now_ms)

    def leave(self, group_id: str, leavers: list[Leaver], answer: AnswerMember, now_ms: int) -> None:
        home = self._home_of(group_id, now_ms)
        self._run_and_reply(home, home.members.leave(group_id, leavers, answer, now_ms), now_ms)

    def heartbeat(self, cmd: Heartbeat, now_ms: int) -> int:
        home = self._home_of(cmd.group_id, now_ms)
        error = home.members.heartbeat(cmd, now_ms)
        self._set_alarm(home)
        return error

    def consumer_heartbeat(self, cmd: ConsumerHeartbeat, now_ms: int) -> HeartbeatResult:
        home = self._home_of(cmd.group_id, now_ms)
        result, replies = self._run(home, home.members.consumer_heartbeat(cmd, now_ms), now_ms)
        _send(replies)
        return result

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
        decision = commits.offset_commit(
            home.shard,
            self.config,
            group_id,
            committer,
            asked,
            version=version,
            retention_time_ms=retention_time_ms,
            now_ms=now_ms,
        )
        return run(decision, partial(self._write_offsets, home, None, now_ms))

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
        error = home.log.partition.check_offset_commit(producer_id, epoch, is_verified)
        if error:
            return CommitDecision(error)
        decision = commits.txn_offset_commit(home.shard, self.config, group_id, committer, asked, now_ms=now_ms)
        return run(decision, partial(self._write_offsets, home, Writer(producer_id, epoch), now_ms))

    def has_open_txn(self, group_id: str, producer_id: int, epoch: int, now_ms: int) -> bool:
        return self._home_of(group_id, now_ms).log.partition.has_open_txn(producer_id, epoch)

    def _write_offsets(self, home: _Home, writer: Writer | None, now_ms: int, records: Sequence[LogRecord]) -> int:
        self._reach("offsets.append.before")
        error = home.log.write(records, now_ms, writer, is_limited=False)
        if not error:
            self._reach("offsets.append.after")
        return error

    def _reach(self, point: str) -> None:
        if self._cluster.crash_at is not None:
            self._cluster.crash_at(point)

    def marker_written(self, index: int, producer_id: int, commit: bool) -> None:
        """A transaction ended on this partition of `__consumer_offsets`: its offsets count now, or never."""
        if self._homes:
            self._homes[index].shard.apply_marker(producer_id, commit)

    # --- things that go away ------------------------------------------------------------------------------

    def delete_group(self, group_id: str, now_ms: int) -> int:
        home = self._home_of(group_id, now_ms)
        return self._run(home, deletion.delete_group(home.shard, group_id), now_ms, is_limited=False)

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition], now_ms: int) -> OffsetDeletion:
        home = self._home_of(group_id, now_ms)
        decision = deletion.delete_offsets(home.shard, group_id, partitions)
        return self._run(home, decision, now_ms, is_limited=False)

    def topics_deleted(self, topics: set[str], now_ms: int) -> None:
        for home in self._homes:
            self._run(home, deletion.delete_topics(home.shard, topics), now_ms, is_limited=False)

    def clean_up(self, now_ms: int) -> None:
        for home in self._homes:
            decision = deletion.clean_up(home.shard, self.config.offsets_retention_ms, now_ms)
            self._run(home, decision, now_ms, is_limited=False)

    # --- loading ------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> None:
        from fencepost.broker.cluster import OFFSETS_TOPIC

        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        self._homes = [self._new_home(partition) for partition in topic.partitions] if topic else []
        for home in self._homes:
            home.log.load()
            self._run_and_reply(home, home.members.resume(now_ms), now_ms)
        interval_ms = self._cluster.config["offsets.retention.check.interval.ms"]
        self._cluster.timers.every(interval_ms, now_ms, self.clean_up)

    def _decode(self, key: bytes, value: bytes, offset: int) -> LogRecord | None:
        record = decode(key, value, offset)
        is_obsolete = isinstance(record, OffsetRecord) and self._is_of_deleted_topic(record)
        return None if is_obsolete else record

    def _is_of_deleted_topic(self, record: OffsetRecord) -> bool:
        """Whether the topic was deleted, and the last process died before it could write the offset's tombstone."""
        if record.value is None or record.value.topic_id == NO_TOPIC_ID:
            return False
        topic = self._cluster.topics.get(record.topic)
        return topic is None or topic.topic_id != record.value.topic_id


def _send(replies: list[Reply]) -> None:
    for reply in replies:
        reply.token(reply.result)  # type: ignore[operator]
