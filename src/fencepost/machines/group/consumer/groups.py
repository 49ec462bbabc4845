"""All groups of the consumer protocol in one partition of `__consumer_offsets`, beside the classic ones.

Decide, append, apply: what a request changes is first written to a `Draft`, its records are appended as one batch,
and only then does the group change. Members that have to do something by a certain time are in `ConsumerGroup.waits`.
A group changes its protocol here, too; the classic groups are the shard's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fencepost.machines.group.classic import rebalance
from fencepost.machines.group.classic.group import EMPTY, Group, GroupConfig, record_of
from fencepost.machines.group.classic.requests import (
    Effect,
    GroupChange,
    Heartbeat,
    Join,
    JoinResult,
    Leaver,
    LeaveResult,
    Reply,
    Sync,
    SyncResult,
    Token,
)
from fencepost.machines.group.consumer import heartbeat as consumer_heartbeat
from fencepost.machines.group.consumer import migration as consumer_migration
from fencepost.machines.group.consumer.group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    UNREVOKED_PARTITIONS,
    ConsumerGroup,
    ConsumerRecord,
    Draft,
    EpochRecord,
    MemberRecord,
    Topics,
    Wait,
    tombstones,
)
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult, Refused
from fencepost.protocol import errors

SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
RETRY_MS = 1_000

LogRecord = ConsumerRecord | GroupChange
# Appends records as one batch, all or none; gives an error code.
Append = Callable[[Sequence[LogRecord]], int]
# Carries out what a classic group wants to happen.
Settle = Callable[[Group, list[Effect], int], list[Reply]]


class NoTopics:
    """For groups that nobody asks about topics."""

    version = 0

    def by_name(self, name: str) -> None:
        return None

    def by_id(self, topic_id: bytes) -> None:
        return None

    def names(self) -> Iterable[str]:
        return ()


class ConsumerGroups:
    def __init__(
        self, config: GroupConfig, classic: dict[str, Group], append: Append, settle: Settle, topics: Topics
    ) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._config = config
        self._classic = classic
        self._append = append
        self._settle_classic = settle
        self._topics = topics

    # The consumer protocol.

    def heartbeat(self, cmd: ConsumerHeartbeat, new_member_id: str, now_ms: int) -> tuple[HeartbeatResult, list[Reply]]:
        """Answer ConsumerGroupHeartbeat; with replies to members of a classic group that is one no more."""
        try:
            consumer_heartbeat.check(cmd, self._config)
            if cmd.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return self._leave(cmd, now_ms)
            return self._heartbeat(cmd, new_member_id, now_ms)
        except Refused as e:
            return HeartbeatResult(e.code, str(e)), []

    def _heartbeat(
        self, cmd: ConsumerHeartbeat, new_member_id: str, now_ms: int
    ) -> tuple[HeartbeatResult, list[Reply]]:
        draft, before = self._draft_for(cmd.group_id, is_joining=cmd.member_epoch == 0)
        if not cmd.member_id:
            cmd = replace(cmd, member_id=new_member_id)
        result = consumer_heartbeat.heartbeat(draft, cmd, self._topics, self._config, now_ms)
        old = self._classic.get(cmd.group_id) if before else None
        group = self._commit(draft, before)
        group.seen_topics_version = self._topics.version
        self._expect(group, cmd.member_id, SESSION, now_ms, self._config.consumer_session_timeout_ms)
        self._expect_revocation(group, cmd.member_id, now_ms)
        return result, self._dismiss(old, group, now_ms)

    def _draft_for(self, group_id: str, is_joining: bool) -> tuple[Draft, list[LogRecord]]:
        """The group that a heartbeat is for, and what ends the classic group whose place it takes."""
        group = self.groups.get(group_id)
        if group is not None:
            return Draft(group), []
        classic = self._classic.get(group_id)
        if not is_joining:
            is_missing = f"Consumer group {group_id} not found."
            is_other = f"Group {group_id} is not a consumer group."
            raise Refused(errors.GROUP_ID_NOT_FOUND, is_missing if classic is None else is_other)
        if classic is None:
            return Draft(ConsumerGroup(group_id)), []
        if classic.state is EMPTY:
            return Draft(ConsumerGroup(group_id)), [GroupChange(group_id, None)]
        consumer_migration.check_upgrade(classic, self._config)
        return consumer_migration.upgraded(classic, self._topics), [GroupChange(group_id, None)]

    def _dismiss(self, classic: Group | None, group: ConsumerGroup, now_ms: int) -> list[Reply]:
        """A classic group has become a consumer group: who waits in it is told to join again."""
        if classic is None:
            return []
        for member in group.classic_members():
            assert member.classic is not None
            self._expect(group, member.member_id, SESSION, now_ms, member.classic.session_timeout_ms)
        return self._settle_classic(classic, rebalance.dismiss(classic, errors.REBALANCE_IN_PROGRESS), now_ms)

    def _leave(self, cmd: ConsumerHeartbeat, now_ms: int) -> tuple[HeartbeatResult, list[Reply]]:
        group = self.groups.get(cmd.group_id)
        if group is None:
            raise Refused(errors.GROUP_ID_NOT_FOUND, f"Group {cmd.group_id} not found.")
        draft = Draft(group)
        result = consumer_heartbeat.leave(draft, cmd, self._topics)
        gone = group.members.keys() - draft.group.members.keys()
        if gone:
            return result, self._fence(group, gone, now_ms)
        self._commit(draft)
        return result, []

    def _fence(self, group: ConsumerGroup, member_ids: Iterable[str], now_ms: int) -> list[Reply]:
        """Take members out. Where only members of the classic protocol are left, the group becomes classic."""
        gone = sorted(member_ids)
        if consumer_migration.may_downgrade(group, gone, self._config):
            return self._downgrade(group, gone, now_ms)
        draft = Draft(group)
        consumer_heartbeat.fence(draft, gone, self._topics)
        self._commit(draft)
        return []

    def _downgrade(self, group: ConsumerGroup, gone: list[str], now_ms: int) -> list[Reply]:
        classic = consumer_migration.downgraded(group, gone, self._topics, now_ms)
        # Without a leader: so a restart before the others have joined again finds that they have to.
        record = record_of(classic, {m.member_id: m.assignment for m in classic.members.values()})._replace(leader=None)
        self._write([*tombstones(group), GroupChange(group.group_id, record)])
        del self.groups[group.group_id]
        self._classic[group.group_id] = classic
        for member in classic.members.values():
            classic.expect_heartbeat(member, now_ms)
        return self._settle_classic(classic, rebalance.start(classic, self._config, now_ms), now_ms)

    # The classic protocol in a consumer group.

    def join(self, cmd: Join, token: Token, new_member_id: str, now_ms: int) -> tuple[bool, list[Reply]]:
        """Answer JoinGroup to a consumer group; False if the group is classic now and has to answer itself."""
        group = self.groups[cmd.group_id]
        try:
            if self._gives_way(group, cmd):
                return False, self._retire(group, cmd, now_ms)
            draft = Draft(group)
            result = consumer_migration.join(draft, cmd, new_member_id, self._topics, self._config, now_ms)
            if result.error_code == errors.NONE:
                self._commit(draft)
                group.seen_topics_version = self._topics.version
                group.waits.pop((JOIN, result.member_id), None)
                self._expect(group, result.member_id, SESSION, now_ms, cmd.session_timeout_ms)
                self._expect(group, result.member_id, SYNC, now_ms, cmd.time_to_rejoin_ms())
        except Refused as e:
            result = JoinResult(e.code, cmd.member_id)
        return True, [Reply(token, result)]

    def _gives_way(self, group: ConsumerGroup, cmd: Join) -> bool:
        """Whether nobody of the consumer protocol is left in the group, once this member has joined."""
        if not group.members:
            return True
        static = group.static_member(cmd.group_instance_id)
        return (
            static is not None
            and static.classic is None
            and not cmd.member_id
            and len(group.classic_members()) == len(group.members) - 1
            and self._config.consumer_migration_policy in ("bidirectional", "downgrade")
        )

    def _retire(self, group: ConsumerGroup, cmd: Join, now_ms: int) -> list[Reply]:
        static = group.static_member(cmd.group_instance_id)
        if len(group.members) > 1:
            assert static is not None
            return self._downgrade(group, [static.member_id], now_ms)
        self._write(tombstones(group))
        del self.groups[group.group_id]
        self._classic[group.group_id] = Group(group.group_id, state_timestamp_ms=now_ms)
        return []

    def sync(self, cmd: Sync, token: Token, now_ms: int) -> list[Reply]:
        group = self.groups[cmd.group_id]
        try:
            member, assignment = consumer_migration.sync(group, cmd, self._topics)
        except Refused as e:
            if e.code == errors.REBALANCE_IN_PROGRESS:
                self._expect_join(group, cmd.member_id, now_ms)
            return [Reply(token, SyncResult(e.code))]
        assert member.classic is not None
        group.waits.pop((SYNC, member.member_id), None)
        self._expect(group, member.member_id, SESSION, now_ms, member.classic.session_timeout_ms)
        return [Reply(token, SyncResult(errors.NONE, cmd.protocol_type, cmd.protocol_name, assignment))]

    def classic_heartbeat(self, cmd: Heartbeat, now_ms: int) -> int:
        group = self.groups[cmd.group_id]
        try:
            member = consumer_migration.find_classic(group, cmd.member_id, cmd.group_instance_id, cmd.generation_id)
        except Refused as e:
            return e.code
        assert member.classic is not None
        self._expect(group, member.member_id, SESSION, now_ms, member.classic.session_timeout_ms)
        if not consumer_migration.must_rejoin(group, member):
            return errors.NONE
        self._expect_join(group, member.member_id, now_ms)
        return errors.REBALANCE_IN_PROGRESS

    def classic_leave(self, group_id: str, leavers: list[Leaver], token: Token, now_ms: int) -> list[Reply]:
        group = self.groups[group_id]
        found = [consumer_migration.who_leaves(group, leaver) for leaver in leavers]
        gone = {member_id for member_id, error in found if not error}
        answers = tuple((*leaver, error) for leaver, (_, error) in zip(leavers, found))
        replies: list[Reply] = []
        try:
            if gone:
                replies = self._fence(group, gone, now_ms)
        except Refused as e:
            return [Reply(token, LeaveResult(e.code))]
        return [*replies, Reply(token, LeaveResult(errors.NONE, answers))]

    # Time.

    def expire(self, group: ConsumerGroup, now_ms: int) -> list[Reply]:
        """Fence the members that did not do in time what they had to."""
        gone: set[str] = set()
        for key, wait in list(group.waits.items()):
            if wait.due_ms <= now_ms:
                del group.waits[key]
                member = group.members.get(key[1])
                if member is not None and wait.epoch in (None, member.epoch):
                    gone.add(key[1])
        try:
            return self._fence(group, gone, now_ms) if gone else []
        except Refused:
            for member_id in gone:  # The disk refuses: later.
                self._expect(group, member_id, SESSION, now_ms, RETRY_MS)
            return []

    def resume(self, now_ms: int) -> None:
        """The log is loaded: from now on members have a whole session to show up."""
        for group in self.groups.values():
            for member_id, member in group.members.items():
                classic = member.classic
                session_ms = self._config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
                self._expect(group, member_id, SESSION, now_ms, session_ms)
                self._expect_revocation(group, member_id, now_ms)

    def _expect(self, group: ConsumerGroup, member_id: str, what: str, now_ms: int, within_ms: int) -> None:
        group.waits[what, member_id] = Wait(now_ms + within_ms)

    def _expect_join(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        if (JOIN, member_id) not in group.waits:
            self._expect(group, member_id, JOIN, now_ms, group.members[member_id].rebalance_timeout_ms)

    def _expect_revocation(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """A member that has to give something up must do so in time: others wait for it."""
        member = group.members[member_id]
        known = group.waits.get((REBALANCE, member_id))
        if member.state is not UNREVOKED_PARTITIONS or member.classic is not None:
            group.waits.pop((REBALANCE, member_id), None)
        elif known is None or known.epoch != member.epoch:
            group.waits[REBALANCE, member_id] = Wait(now_ms + member.rebalance_timeout_ms, member.epoch)

    # Records.

    def _commit(self, draft: Draft, before: Sequence[LogRecord] = ()) -> ConsumerGroup:
        """Append what was decided, and then let it count."""
        records = [*before, *draft.records]
        if records:
            self._write(records)
        for record in records:
            if isinstance(record, GroupChange):
                self._classic.pop(record.group_id, None)
            else:
                self.apply(record)
        return self.groups[draft.group.group_id]

    def _write(self, records: Sequence[LogRecord]) -> None:
        error = self._append(records)
        if error:
            why = ": its records are larger than message.max.bytes" if error == errors.MESSAGE_TOO_LARGE else ""
            raise Refused(rebalance.error_after_append(error), f"the group could not be written down{why}")

    def apply(self, record: ConsumerRecord) -> None:
        """Take a record in that is in the log. A group comes into being with its first."""
        group = self.groups.get(record.group_id)
        if isinstance(record, EpochRecord) and record.value is None:
            self.groups.pop(record.group_id, None)
            return
        if group is None:
            if record.value is None:
                return
            # What had this name only kept offsets: a group with members has an end of its own in the log.
            self._classic.pop(record.group_id, None)
            group = self.groups[record.group_id] = ConsumerGroup(record.group_id)
        group.apply(record)
        if isinstance(record, MemberRecord) and record.value is None:
            for what in (SESSION, REBALANCE, JOIN, SYNC):
                group.waits.pop((what, record.member_id), None)
