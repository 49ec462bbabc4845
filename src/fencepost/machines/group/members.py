"""The requests of group members and the deadlines of their groups, whichever protocol they use.

A request about a group of the classic protocol goes to `classic/members.py`, one about a group of the consumer protocol
to `consumer/members.py`. Requests are decisions (see `decision.py`) that return the replies that are due: to the
request itself, or to others that were held before.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from fencepost.machines.group.classic import members as classic
from fencepost.machines.group.classic import rebalance
from fencepost.machines.group.classic.requests import (
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
from fencepost.machines.group.consumer.group import TopicLookup
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from fencepost.machines.group.consumer.members import ConsumerMembers
from fencepost.machines.group.decision import Decision
from fencepost.machines.group.shard import GroupShard
from fencepost.protocol import errors


class Deadlines:
    """The next deadline of every group, earliest first.

    A deadline that moves to later is left where it is: when it comes up, the group finds that nothing is due.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._due_of: dict[str, int] = {}  # By group. An entry of the heap that differs from it is out of date.

    def note(self, group_id: str, due_ms: int | None) -> None:
        """The group has something to do at `due_ms`, and not before."""
        if due_ms is not None and due_ms < self._due_of.get(group_id, due_ms + 1):
            self._due_of[group_id] = due_ms
            heappush(self._heap, (due_ms, group_id))

    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and self._due_of.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> list[str]:
        """The groups that are due by now, earliest first. Their deadlines are forgotten."""
        due: list[str] = []
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            _, group_id = heappop(self._heap)
            del self._due_of[group_id]
            due.append(group_id)
        return due


class GroupMembers:
    def __init__(
        self, shard: GroupShard, config: GroupConfig, topics: TopicLookup, new_uuid: Callable[[], str]
    ) -> None:
        self._shard = shard
        self._config = config
        self._new_uuid = new_uuid
        self._consumer = ConsumerMembers(shard, config, topics)
        self._deadlines = Deadlines()

    # The classic protocol.

    def join(self, cmd: Join, token: Token, now_ms: int) -> Decision[list[Reply]]:
        error = self._join_error(cmd)
        if error:
            return [Reply(token, JoinResult(error, cmd.member_id))]
        replies: list[Reply] = []
        is_answered = False
        if cmd.group_id in self._shard.consumer:
            is_answered, replies = yield from self._consumer.join(cmd, token, self._new_uuid(), now_ms)
        if not is_answered:
            replies += yield from self._join_classic(cmd, token, now_ms)
        self._note_deadline(cmd.group_id)
        return replies

    def _join_classic(self, cmd: Join, token: Token, now_ms: int) -> Decision[list[Reply]]:
        group = self._shard.classic.get(cmd.group_id)
        if group is None:
            # Differs: Kafka writes a record of a new group before it has members. Fencepost does not: a restart loses
            # nothing without it.
            group = self._shard.add_unrecorded(cmd.group_id, now_ms)
        new_member_id = "" if cmd.member_id else self._new_member_id(cmd)
        return (yield from classic.join(group, cmd, token, new_member_id, self._config, now_ms))

    def _join_error(self, cmd: Join) -> int:
        if not cmd.group_id:
            return errors.INVALID_GROUP_ID
        shortest_ms = self._config.group_min_session_timeout_ms
        longest_ms = self._config.group_max_session_timeout_ms
        if not shortest_ms <= cmd.session_timeout_ms <= longest_ms:
            return errors.INVALID_SESSION_TIMEOUT
        if cmd.member_id and self._shard.find(cmd.group_id) is None:
            return errors.UNKNOWN_MEMBER_ID
        return errors.NONE

    def _new_member_id(self, cmd: Join) -> str:
        name = cmd.client_id if cmd.group_instance_id is None else cmd.group_instance_id
        return f"{name}-{self._new_uuid()}"

    def sync(self, cmd: Sync, token: Token, now_ms: int) -> Decision[list[Reply]]:
        if cmd.version >= 5 and (cmd.protocol_type is None or cmd.protocol_name is None):
            return [Reply(token, SyncResult(errors.INCONSISTENT_GROUP_PROTOCOL))]
        group = self._shard.classic.get(cmd.group_id)
        if cmd.group_id in self._shard.consumer:
            replies = self._consumer.sync(cmd, token, now_ms)
        elif group is None or not cmd.group_id:
            return [Reply(token, SyncResult(_no_such_group(cmd.group_id)))]
        else:
            replies = yield from classic.sync(group, cmd, token, now_ms)
        self._note_deadline(cmd.group_id)
        return replies

    def heartbeat(self, cmd: Heartbeat, now_ms: int) -> int:
        group = self._shard.classic.get(cmd.group_id)
        if group is not None and cmd.group_id:
            return classic.heartbeat(group, cmd, now_ms)
        if cmd.group_id in self._shard.consumer:
            error = self._consumer.classic_heartbeat(cmd, now_ms)
            self._note_deadline(cmd.group_id)
            return error
        return _no_such_group(cmd.group_id)

    def leave(self, group_id: str, leavers: list[Leaver], token: Token, now_ms: int) -> Decision[list[Reply]]:
        if not group_id:
            return [Reply(token, LeaveResult(errors.INVALID_GROUP_ID))]
        group = self._shard.classic.get(group_id)
        if group_id in self._shard.consumer:
            replies = yield from self._consumer.classic_leave(group_id, leavers, token, now_ms)
        elif group is not None:
            replies = yield from classic.leave(group, leavers, token, now_ms)
        else:
            unknown = tuple((*leaver, errors.UNKNOWN_MEMBER_ID) for leaver in leavers)
            return [Reply(token, LeaveResult(errors.NONE, unknown))]
        self._note_deadline(group_id)
        return replies

    # The consumer protocol.

    def consumer_heartbeat(self, cmd: ConsumerHeartbeat, now_ms: int) -> Decision[tuple[HeartbeatResult, list[Reply]]]:
        """Answer ConsumerGroupHeartbeat; with the replies to members of a classic group that changes its protocol."""
        new_member_id = "" if cmd.member_id else self._new_uuid()
        answer = yield from self._consumer.heartbeat(cmd, new_member_id, now_ms)
        self._note_deadline(cmd.group_id)
        return answer

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When to call `expire`; it may turn out that nothing was due after all."""
        return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> Decision[list[Reply]]:
        """End the sessions, joins and syncs that waited too long."""
        replies: list[Reply] = []
        for group_id in self._deadlines.take_due(now_ms):
            classic_group = self._shard.classic.get(group_id)
            consumer_group = self._shard.consumer.get(group_id)
            if classic_group is not None:
                replies += yield from rebalance.expire(classic_group, self._config, now_ms)
            elif consumer_group is not None:
                replies += yield from self._consumer.expire(consumer_group, now_ms)
            self._note_deadline(group_id)
        return replies

    def resume(self, now_ms: int) -> Decision[list[Reply]]:
        """The log is loaded: from now on sessions run."""
        replies: list[Reply] = []
        for group in list(self._shard.classic.values()):
            replies += yield from rebalance.resume(group, self._config, now_ms)
        for consumer_group in self._shard.consumer.values():
            self._consumer.resume(consumer_group, now_ms)
        for group_id in (*self._shard.classic, *self._shard.consumer):
            self._note_deadline(group_id)
        return replies

    def _note_deadline(self, group_id: str) -> None:
        group = self._shard.find(group_id)
        if group is not None:
            self._deadlines.note(group_id, group.next_deadline_ms())


def _no_such_group(group_id: str) -> int:
    return errors.UNKNOWN_MEMBER_ID if group_id else errors.INVALID_GROUP_ID
