"""The requests of members of consumer groups, and their deadlines.

Each request is a decision (see `decision.py`): its changes are first made to a `Draft`, and the records of the draft
are yielded as one batch. Members that have to do something by a certain time are in `ConsumerGroup.waits`.
Here a group also changes its protocol: the tombstones of the old group and the records of the new one are one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fencepost.machines.group.classic import rebalance
from fencepost.machines.group.classic.group import EMPTY, ClassicGroup
from fencepost.machines.group.classic.members import error_after_append
from fencepost.machines.group.classic.rebalance import release_all
from fencepost.machines.group.classic.requests import (
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
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer import heartbeat as consumer_heartbeat
from fencepost.machines.group.consumer import migration
from fencepost.machines.group.consumer.group import (
    JOIN,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    REBALANCE,
    SESSION,
    SYNC,
    UNREVOKED_PARTITIONS,
    ConsumerGroup,
    Draft,
    TopicLookup,
    Wait,
    tombstones,
)
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, GroupRefused, HeartbeatResult
from fencepost.machines.group.decision import Decision, LogRecord
from fencepost.machines.group.shard import GroupShard
from fencepost.protocol import errors

RETRY_MS = 1_000


class ConsumerMembers:
    def __init__(self, shard: GroupShard, config: GroupConfig, topics: TopicLookup) -> None:
        self._shard = shard
        self._config = config
        self._topics = topics

    # The consumer protocol.

    def heartbeat(
        self, cmd: ConsumerHeartbeat, new_member_id: str, now_ms: int
    ) -> Decision[tuple[HeartbeatResult, list[Reply]]]:
        """Answer ConsumerGroupHeartbeat; with the replies to members of a classic group that changes its protocol."""
        try:
            consumer_heartbeat.check(cmd, self._config)
            if cmd.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return (yield from self._leave(cmd, now_ms))
            return (yield from self._heartbeat(cmd, new_member_id, now_ms))
        except GroupRefused as e:
            return HeartbeatResult(e.code, str(e)), []

    def _heartbeat(
        self, cmd: ConsumerHeartbeat, new_member_id: str, now_ms: int
    ) -> Decision[tuple[HeartbeatResult, list[Reply]]]:
        classic = self._shard.classic.get(cmd.group_id)
        draft = self._draft_for(cmd.group_id, classic, is_joining=cmd.member_epoch == 0)
        if not cmd.member_id:
            cmd = replace(cmd, member_id=new_member_id)
        result = consumer_heartbeat.heartbeat(draft, cmd, self._topics, self._config, now_ms)
        if classic is not None:
            yield from _write([GroupChange(cmd.group_id, None), *draft.records])
        elif draft.records:
            yield from _write(draft.records)
        group = self._shard.consumer[cmd.group_id]
        group.seen_topics_version = self._topics.version
        _expect(group, cmd.member_id, SESSION, now_ms, self._config.consumer_session_timeout_ms)
        _expect_revocation(group, cmd.member_id, now_ms)
        return result, [] if classic is None else _take_over(classic, group, now_ms)

    def _draft_for(self, group_id: str, classic: ClassicGroup | None, is_joining: bool) -> Draft:
        """The group that a heartbeat is for: one that exists, a new one, or the successor of a classic group."""
        group = self._shard.consumer.get(group_id)
        if group is not None:
            return Draft(group)
        if not is_joining:
            is_missing = f"Consumer group {group_id} not found."
            is_other = f"Group {group_id} is not a consumer group."
            raise GroupRefused(errors.GROUP_ID_NOT_FOUND, is_missing if classic is None else is_other)
        if classic is None or classic.state is EMPTY:
            return Draft(ConsumerGroup(group_id))
        migration.check_upgrade(classic, self._config)
        return migration.upgraded(classic, self._topics)

    def _leave(self, cmd: ConsumerHeartbeat, now_ms: int) -> Decision[tuple[HeartbeatResult, list[Reply]]]:
        group = self._shard.consumer.get(cmd.group_id)
        if group is None:
            raise GroupRefused(errors.GROUP_ID_NOT_FOUND, f"Group {cmd.group_id} not found.")
        draft = Draft(group)
        result = consumer_heartbeat.leave(draft, cmd, self._topics)
        gone = group.members.keys() - draft.group.members.keys()
        if gone:
            return result, (yield from self._fence(group, gone, now_ms))
        yield from _write(draft.records)
        return result, []

    def _fence(self, group: ConsumerGroup, member_ids: Iterable[str], now_ms: int) -> Decision[list[Reply]]:
        """Take members out. If only members of the classic protocol are left, the group becomes classic."""
        gone = sorted(member_ids)
        if migration.may_downgrade(group, gone, self._config):
            return (yield from self._downgrade(group, gone, now_ms))
        draft = Draft(group)
        consumer_heartbeat.fence(draft, gone, self._topics)
        yield from _write(draft.records)
        return []

    def _downgrade(self, group: ConsumerGroup, gone: list[str], now_ms: int) -> Decision[list[Reply]]:
        record = migration.downgraded(group, gone, self._topics, now_ms)
        offers = {member.member_id: migration.protocols_of(member) for member in group.classic_members()}
        yield from _write([*tombstones(group), GroupChange(group.group_id, record)])
        classic = self._shard.classic[group.group_id]
        # The record keeps only the metadata of the chosen protocol; the members still offer all of theirs.
        for member in classic.members.values():
            member.protocols = offers[member.member_id]
        return (yield from rebalance.resume(classic, self._config, now_ms))

    # The classic protocol in a consumer group.

    def join(self, cmd: Join, token: Token, new_member_id: str, now_ms: int) -> Decision[tuple[bool, list[Reply]]]:
        """Answer JoinGroup to a consumer group; False if the group is classic now and must answer itself."""
        group = self._shard.consumer[cmd.group_id]
        try:
            if self._gives_way(group, cmd):
                return False, (yield from self._retire(group, cmd, now_ms))
            draft = Draft(group)
            result = migration.join(draft, cmd, new_member_id, self._topics, self._config, now_ms)
            if result.error_code == errors.NONE:
                if draft.records:
                    yield from _write(draft.records)
                group.seen_topics_version = self._topics.version
                group.waits.pop((JOIN, result.member_id), None)
                _expect(group, result.member_id, SESSION, now_ms, cmd.session_timeout_ms)
                _expect(group, result.member_id, SYNC, now_ms, cmd.time_to_rejoin_ms())
        except GroupRefused as e:
            result = JoinResult(e.code, cmd.member_id)
        return True, [Reply(token, result)]

    def _gives_way(self, group: ConsumerGroup, cmd: Join) -> bool:
        """Whether no member of the consumer protocol is left in the group once this member has joined."""
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

    def _retire(self, group: ConsumerGroup, cmd: Join, now_ms: int) -> Decision[list[Reply]]:
        """End the consumer group in favour of a classic one: without members, or with those that are left."""
        static = group.static_member(cmd.group_instance_id)
        if len(group.members) > 1:
            assert static is not None
            return (yield from self._downgrade(group, [static.member_id], now_ms))
        yield from _write(tombstones(group))
        return []

    def sync(self, cmd: Sync, token: Token, now_ms: int) -> list[Reply]:
        group = self._shard.consumer[cmd.group_id]
        try:
            member, assignment = migration.sync(group, cmd, self._topics)
        except GroupRefused as e:
            if e.code == errors.REBALANCE_IN_PROGRESS:
                _expect_join(group, cmd.member_id, now_ms)
            return [Reply(token, SyncResult(e.code))]
        assert member.classic is not None
        group.waits.pop((SYNC, member.member_id), None)
        _expect(group, member.member_id, SESSION, now_ms, member.classic.session_timeout_ms)
        return [Reply(token, SyncResult(errors.NONE, cmd.protocol_type, cmd.protocol_name, assignment))]

    def classic_heartbeat(self, cmd: Heartbeat, now_ms: int) -> int:
        group = self._shard.consumer[cmd.group_id]
        try:
            member = migration.find_classic(group, cmd.member_id, cmd.group_instance_id, cmd.generation_id)
        except GroupRefused as e:
            return e.code
        assert member.classic is not None
        _expect(group, member.member_id, SESSION, now_ms, member.classic.session_timeout_ms)
        if not migration.must_rejoin(group, member):
            return errors.NONE
        _expect_join(group, member.member_id, now_ms)
        return errors.REBALANCE_IN_PROGRESS

    def classic_leave(self, group_id: str, leavers: list[Leaver], token: Token, now_ms: int) -> Decision[list[Reply]]:
        group = self._shard.consumer[group_id]
        found = [migration.who_leaves(group, leaver) for leaver in leavers]
        gone = {member_id for member_id, error in found if not error}
        answers = tuple((*leaver, error) for leaver, (_, error) in zip(leavers, found))
        replies: list[Reply] = []
        try:
            if gone:
                replies = yield from self._fence(group, gone, now_ms)
        except GroupRefused as e:
            return [Reply(token, LeaveResult(e.code))]
        return [*replies, Reply(token, LeaveResult(errors.NONE, answers))]

    # Time.

    def expire(self, group: ConsumerGroup, now_ms: int) -> Decision[list[Reply]]:
        """Fence the members that missed a deadline."""
        gone: set[str] = set()
        for key, wait in list(group.waits.items()):
            if wait.due_ms <= now_ms:
                del group.waits[key]
                member = group.members.get(key[1])
                if member is not None and wait.epoch in (None, member.epoch):
                    gone.add(key[1])
        try:
            return (yield from self._fence(group, gone, now_ms)) if gone else []
        except GroupRefused:
            for member_id in gone:  # The records could not be appended: try again later.
                _expect(group, member_id, SESSION, now_ms, RETRY_MS)
            return []

    def resume(self, group: ConsumerGroup, now_ms: int) -> None:
        """The log is loaded: from now on members have a whole session to show up."""
        for member_id, member in group.members.items():
            classic = member.classic
            session_ms = self._config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
            _expect(group, member_id, SESSION, now_ms, session_ms)
            _expect_revocation(group, member_id, now_ms)


def _write(records: Sequence[LogRecord]) -> Decision[None]:
    error = yield records
    if error:
        why = ": its records are larger than message.max.bytes" if error == errors.MESSAGE_TOO_LARGE else ""
        raise GroupRefused(error_after_append(error), f"The group could not be recorded{why}.")


def _take_over(classic: ClassicGroup, group: ConsumerGroup, now_ms: int) -> list[Reply]:
    """A classic group has become a consumer group: its waiting members get an error that makes them join again."""
    for member in group.classic_members():
        assert member.classic is not None
        _expect(group, member.member_id, SESSION, now_ms, member.classic.session_timeout_ms)
    return release_all(classic, errors.REBALANCE_IN_PROGRESS)


def _expect(group: ConsumerGroup, member_id: str, what: str, now_ms: int, within_ms: int) -> None:
    group.waits[what, member_id] = Wait(now_ms + within_ms)


def _expect_join(group: ConsumerGroup, member_id: str, now_ms: int) -> None:
    if (JOIN, member_id) not in group.waits:
        _expect(group, member_id, JOIN, now_ms, group.members[member_id].rebalance_timeout_ms)


def _expect_revocation(group: ConsumerGroup, member_id: str, now_ms: int) -> None:
    """A member that has to give up partitions must do so in time: others wait for them."""
    member = group.members[member_id]
    known = group.waits.get((REBALANCE, member_id))
    if member.state is not UNREVOKED_PARTITIONS or member.classic is not None:
        group.waits.pop((REBALANCE, member_id), None)
    elif known is None or known.epoch != member.epoch:
        group.waits[REBALANCE, member_id] = Wait(now_ms + member.rebalance_timeout_ms, member.epoch)
