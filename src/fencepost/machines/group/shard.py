"""All groups and offsets of one partition of `__consumer_offsets`: what the coordinator of it knows.

Groups of the classic protocol are here, those of the consumer protocol in `consumer_groups.py`; a name belongs to one
of them at a time, and may change over.

Requests about a group's members are answered at once or later: each call returns the replies that are due
now, its own or those of requests held before. The shard appends group records itself, through the `append`
it was given. Everything about offsets is decided here, appended by the caller (who knows of producers and
batches), and then applied here. Loading is `apply_*` over the log in order, then `resume`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from fencepost.machines.group import offsets as committed
from fencepost.machines.group.classic import rebalance
from fencepost.machines.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    PREPARING_REBALANCE,
    STABLE,
    Group,
    GroupConfig,
    restore,
)
from fencepost.machines.group.classic.requests import (
    Effect,
    GroupChange,
    GroupRecord,
    Heartbeat,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Persist,
    Reply,
    Sync,
    SyncResult,
    Token,
)
from fencepost.machines.group.consumer.group import ConsumerGroup, ConsumerRecord, Topics, tombstones
from fencepost.machines.group.consumer.groups import Append, ConsumerGroups, NoTopics
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from fencepost.machines.group.offsets import (
    CommitDecision,
    Committer,
    OffsetRecord,
    Offsets,
    OffsetToCommit,
    TopicPartition,
)
from fencepost.protocol import errors

NO_RETENTION_TIME = -1
AnyGroup = Group | ConsumerGroup


class Deletion(NamedTuple):
    """What to append, and then to apply, so that something is gone."""

    error_code: int
    records: tuple[OffsetRecord | GroupChange | ConsumerRecord, ...] = ()
    partition_errors: tuple[int, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group as DescribeGroups and ListGroups show it."""

    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedMember, ...]
    group_type: str = "classic"


class GroupShard:
    def __init__(
        self,
        config: GroupConfig,
        append: Callable[[str, GroupRecord], int],
        new_uuid: Callable[[], str],
        append_all: Append = lambda records: errors.COORDINATOR_NOT_AVAILABLE,
        topics: Topics | None = None,
    ) -> None:
        """`append(group_id, record)` writes a group's record and returns an error code (0: it is written).

        `append_all` does the same with several, of which all are written or none.
        """
        self.config = config
        self.groups: dict[str, Group] = {}
        self.consumer = ConsumerGroups(config, self.groups, append_all, self._settle, topics or NoTopics())
        self.offsets = Offsets()
        self._append = append
        self._new_uuid = new_uuid
        # Deadlines of groups, earliest first. One that moved to later is left until it comes up.
        self._due: list[tuple[int, str]] = []
        self._due_of: dict[str, int] = {}

    # Members.

    def join(self, cmd: Join, token: Token, now_ms: int) -> list[Reply]:
        error = self._join_error(cmd)
        if error:
            return [Reply(token, JoinResult(error, cmd.member_id))]
        if cmd.group_id in self.consumer.groups:
            is_answered, replies = self.consumer.join(cmd, token, self._new_uuid(), now_ms)
            self._note_due(cmd.group_id)
            return replies if is_answered else [*replies, *self._join_classic(cmd, token, now_ms)]
        return self._join_classic(cmd, token, now_ms)

    def _join_classic(self, cmd: Join, token: Token, now_ms: int) -> list[Reply]:
        group = self.groups.get(cmd.group_id)
        if group is None:
            # Differs: Kafka also writes a record of the group without members. A restart loses nothing without it.
            group = self.groups[cmd.group_id] = Group(cmd.group_id, state_timestamp_ms=now_ms)
        new_member_id = "" if cmd.member_id else self._new_member_id(cmd)
        effects = rebalance.join(group, cmd, token, new_member_id, self.config, now_ms)
        return self._settle(group, effects, now_ms)

    def _join_error(self, cmd: Join) -> int:
        if not cmd.group_id:
            return errors.INVALID_GROUP_ID
        shortest_ms = self.config.group_min_session_timeout_ms
        longest_ms = self.config.group_max_session_timeout_ms
        if not shortest_ms <= cmd.session_timeout_ms <= longest_ms:
            return errors.INVALID_SESSION_TIMEOUT
        if cmd.member_id and cmd.group_id not in self.groups and cmd.group_id not in self.consumer.groups:
            return errors.UNKNOWN_MEMBER_ID
        return errors.NONE

    def _new_member_id(self, cmd: Join) -> str:
        name = cmd.client_id if cmd.group_instance_id is None else cmd.group_instance_id
        return f"{name}-{self._new_uuid()}"

    def sync(self, cmd: Sync, token: Token, now_ms: int) -> list[Reply]:
        if cmd.version >= 5 and (cmd.protocol_type is None or cmd.protocol_name is None):
            return [Reply(token, SyncResult(errors.INCONSISTENT_GROUP_PROTOCOL))]
        if cmd.group_id in self.consumer.groups:
            replies = self.consumer.sync(cmd, token, now_ms)
            self._note_due(cmd.group_id)
            return replies
        group = self.groups.get(cmd.group_id)
        if group is None or not cmd.group_id:
            return [Reply(token, SyncResult(_no_such_group(cmd.group_id)))]
        return self._settle(group, rebalance.sync(group, cmd, token), now_ms)

    def heartbeat(self, cmd: Heartbeat, now_ms: int) -> int:
        if cmd.group_id in self.consumer.groups:
            error = self.consumer.classic_heartbeat(cmd, now_ms)
            self._note_due(cmd.group_id)
            return error
        group = self.groups.get(cmd.group_id)
        if group is None or not cmd.group_id:
            return _no_such_group(cmd.group_id)
        return rebalance.heartbeat(group, cmd, now_ms)

    def leave(self, group_id: str, leavers: list[Leaver], token: Token, now_ms: int) -> list[Reply]:
        if not group_id:
            return [Reply(token, LeaveResult(errors.INVALID_GROUP_ID))]
        if group_id in self.consumer.groups:
            replies = self.consumer.classic_leave(group_id, leavers, token, now_ms)
            self._note_due(group_id)
            return replies
        group = self.groups.get(group_id)
        if group is not None:
            return self._settle(group, rebalance.leave(group, leavers, token, now_ms), now_ms)
        unknown = tuple((*leaver, errors.UNKNOWN_MEMBER_ID) for leaver in leavers)
        return [Reply(token, LeaveResult(errors.NONE, unknown))]

    def consumer_heartbeat(self, cmd: ConsumerHeartbeat, now_ms: int) -> tuple[HeartbeatResult, list[Reply]]:
        """Answer ConsumerGroupHeartbeat, and those whom that lets go."""
        answer = self.consumer.heartbeat(cmd, "" if cmd.member_id else self._new_uuid(), now_ms)
        self._note_due(cmd.group_id)
        return answer

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When to call `expire`; it may turn out that nothing was due after all."""
        while self._due and self._due_of.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def expire(self, now_ms: int) -> list[Reply]:
        """End the sessions, joins and syncs that waited too long."""
        due: list[str] = []
        while (due_ms := self.next_deadline_ms()) is not None and due_ms <= now_ms:
            _, group_id = heappop(self._due)
            del self._due_of[group_id]
            due.append(group_id)
        replies: list[Reply] = []
        for group_id in due:
            group = self.groups.get(group_id)
            consumer_group = self.consumer.groups.get(group_id)
            if group is not None:
                replies += self._settle(group, rebalance.expire(group, self.config, now_ms), now_ms)
            elif consumer_group is not None:
                replies += self.consumer.expire(consumer_group, now_ms)
                self._note_due(group_id)
        return replies

    def resume(self, now_ms: int) -> list[Reply]:
        """The log is loaded: from now on sessions run."""
        replies: list[Reply] = []
        for group in self.groups.values():
            replies += self._settle(group, rebalance.resume(group, self.config, now_ms), now_ms)
        self.consumer.resume(now_ms)
        for group_id in self.consumer.groups:
            self._note_due(group_id)
        return replies

    def unload(self, now_ms: int) -> list[Reply]:
        """This broker gives the partition up: nobody is left waiting."""
        replies: list[Reply] = []
        for group in self.groups.values():
            replies += self._settle(group, rebalance.unload(group, now_ms), now_ms)
        return replies

    def _settle(self, group: Group, effects: list[Effect], now_ms: int) -> list[Reply]:
        """Append what the effects ask for, and give the replies that follow from it."""
        replies: list[Reply] = []
        for effect in effects:
            if isinstance(effect, Persist):
                error_code = self._append(effect.group_id, effect.record)
                replies += self._settle(group, effect.then(error_code, now_ms), now_ms)
            else:
                replies.append(effect)
        self._note_due(group.group_id)
        return replies

    def _note_due(self, group_id: str) -> None:
        group = self.groups.get(group_id) or self.consumer.groups.get(group_id)
        due_ms = None if group is None else group.next_deadline_ms()
        if due_ms is not None and due_ms < self._due_of.get(group_id, due_ms + 1):
            self._due_of[group_id] = due_ms
            heappush(self._due, (due_ms, group_id))

    # Offsets.

    def offset_commit(
        self,
        group_id: str,
        committer: Committer,
        asked: Iterable[OffsetToCommit],
        *,
        version: int,
        now_ms: int,
        retention_time_ms: int = NO_RETENTION_TIME,
    ) -> CommitDecision:
        """Decide OffsetCommit. A member's commit keeps its session alive."""
        group = self.find(group_id)
        decision = committed.decide_offset_commit(
            group_id,
            group,
            committer,
            asked,
            version=version,
            retention_time_ms=retention_time_ms,
            max_metadata=self.config.offset_metadata_max_bytes,
            now_ms=now_ms,
        )
        if isinstance(group, Group) and not decision.error_code and group.state in (STABLE, PREPARING_REBALANCE):
            group.expect_heartbeat(group.members[committer.member_id], now_ms)
        return decision

    def txn_offset_commit(
        self, group_id: str, committer: Committer, asked: Iterable[OffsetToCommit], *, now_ms: int
    ) -> CommitDecision:
        """Decide TxnOffsetCommit, once the partition is known to be in the transaction."""
        if not group_id:
            return CommitDecision(errors.INVALID_GROUP_ID)
        return committed.decide_txn_offset_commit(
            group_id,
            self.find(group_id),
            committer,
            asked,
            max_metadata=self.config.offset_metadata_max_bytes,
            now_ms=now_ms,
        )

    def offset_fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> int:
        """Whether who asks for offsets is the member that it says it is (OffsetFetch v9)."""
        return committed.fetch_error(self.consumer.groups.get(group_id), member_id, member_epoch)

    def find(self, group_id: str) -> AnyGroup | None:
        return self.groups.get(group_id) or self.consumer.groups.get(group_id)

    def _find_alive(self, group_id: str) -> AnyGroup | None:
        group = self.find(group_id)
        return None if isinstance(group, Group) and group.state is DEAD else group

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> Deletion:
        """Decide OffsetDelete: not while consumers read the topic."""
        group = self._find_alive(group_id)
        if group is None:
            return Deletion(errors.GROUP_ID_NOT_FOUND)
        if isinstance(group, Group) and not group.is_empty() and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return Deletion(errors.NON_EMPTY_GROUP)
        codes = tuple(
            errors.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic) else errors.NONE
            for topic, _ in partitions
        )
        free = [partition for partition, code in zip(partitions, codes, strict=True) if not code]
        return Deletion(errors.NONE, tuple(self.offsets.decide_delete(group_id, free)), codes)

    # Groups.

    def delete_group(self, group_id: str) -> Deletion:
        """Decide DeleteGroups: only a group without members goes, and its offsets with it."""
        group = self._find_alive(group_id)
        if group is None:
            return Deletion(errors.GROUP_ID_NOT_FOUND)
        if not group.is_empty():
            return Deletion(errors.NON_EMPTY_GROUP)
        return Deletion(errors.NONE, (*self.offsets.decide_delete(group_id), *_end_of(group)))

    def cleanup(self, now_ms: int) -> Deletion:
        """Every now and then: expired offsets go, and groups that have neither members nor offsets."""
        records: list[OffsetRecord | GroupChange | ConsumerRecord] = []
        groups: list[AnyGroup] = [*self.groups.values(), *self.consumer.groups.values()]
        for group in groups:
            expired = self.offsets.decide_expired(group, self.config.offsets_retention_ms, now_ms)
            records += expired
            has_offsets = len(self.offsets.committed(group.group_id)) > len(expired)
            is_awaited = isinstance(group, Group) and bool(group.pending_members)
            if group.is_empty() and not (has_offsets or is_awaited or self.offsets.has_open_txn(group.group_id)):
                records += _end_of(group)
        return Deletion(errors.NONE, tuple(records))

    def topics_deleted(self, topics: set[str]) -> Deletion:
        return Deletion(errors.NONE, tuple(self.offsets.decide_topics_deleted(topics)))

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return None
        protocol = group.protocol if group.state is STABLE else None
        members = tuple(
            DescribedMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                metadata=b"" if protocol is None else m.metadata(protocol),
                assignment=m.assignment,
            )
            for m in group.members.values()
        )
        return DescribedGroup(group_id, group.state.value, group.protocol_type or "", protocol or "", members)

    def listed(self) -> list[DescribedGroup]:
        """Every group, for ListGroups to filter."""
        described = (self.describe(group_id) for group_id in self.groups)
        consumer_groups = [
            DescribedGroup(group.group_id, group.state_name(), CONSUMER_PROTOCOL_TYPE, "", (), "consumer")
            for group in self.consumer.groups.values()
        ]
        return [*(group for group in described if group is not None), *consumer_groups]

    # Records, once they are in the log.

    def apply_consumer(self, record: ConsumerRecord) -> None:
        """Take a consumer group's record from the log."""
        self.consumer.apply(record)

    def apply_group(self, group_id: str, record: GroupRecord | None) -> None:
        """Take a group's record from the log, or its tombstone."""
        if record is None:
            self.groups.pop(group_id, None)
            self._due_of.pop(group_id, None)
        else:
            self.groups[group_id] = restore(group_id, record)

    def apply_offset(self, record: OffsetRecord, producer_id: int | None, record_offset: int) -> None:
        """Take an offset from the log. A group that only keeps offsets comes into being with its first."""
        if record.value is not None and self.find(record.group_id) is None:
            self.groups[record.group_id] = Group(record.group_id)
        self.offsets.apply_offset(record, producer_id, record_offset)

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        self.offsets.apply_marker(producer_id, commit)

    def apply(self, deletion: Deletion, record_offset: int) -> None:
        """What was decided to go has its tombstones in the log."""
        for record in deletion.records:
            if isinstance(record, GroupChange):
                self.apply_group(record.group_id, None)
            elif isinstance(record, OffsetRecord):
                self.apply_offset(record, None, record_offset)
            else:
                self.apply_consumer(record)


def _end_of(group: AnyGroup) -> list[GroupChange | ConsumerRecord]:
    """The records that end a group."""
    if isinstance(group, ConsumerGroup):
        return [*tombstones(group)]
    return [GroupChange(group.group_id, None)]


def _no_such_group(group_id: str) -> int:
    return errors.UNKNOWN_MEMBER_ID if group_id else errors.INVALID_GROUP_ID
