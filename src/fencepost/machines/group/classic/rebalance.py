"""The rebalance of a classic group: all members join, a leader assigns, the deadlines of both, the answers to members.

A rebalance in short: a member comes, goes or changes (PreparingRebalance); all members join again, or the rebalance
timeout removes them; a leader is chosen and sends the assignment of each (CompletingRebalance); the group's record is
appended and all held syncs are answered (Stable). If no member is left, that is recorded (Empty).

All functions are decisions about one group (see `decision.py`) that return the replies that are due.
Follows the classic part of Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from fencepost.machines.group.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    InitialDelay,
    Member,
    empty_record,
)
from fencepost.machines.group.classic.requests import GroupChange, JoinResult, Reply, SyncResult, Token
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.decision import Decision
from fencepost.protocol import errors


def refuse_join(token: Token, member_id: str, error_code: int) -> Reply:
    return Reply(token, JoinResult(error_code, member_id))


def joined(group: ClassicGroup, member: Member) -> JoinResult:
    return JoinResult(
        error_code=errors.NONE,
        member_id=member.member_id,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        members=group.joined_members() if group.is_leader(member.member_id) else (),
    )


def assignment_of(group: ClassicGroup, member: Member) -> SyncResult:
    return SyncResult(errors.NONE, group.protocol_type, group.protocol, member.assignment)


def release_join(member: Member, result: JoinResult) -> list[Reply]:
    """Answer the member's held join, if there is one."""
    if member.held_join is None:
        return []
    token, member.held_join = member.held_join, None
    return [Reply(token, result)]


def release_sync(member: Member, result: SyncResult) -> list[Reply]:
    """Answer the member's held sync, if there is one."""
    if member.held_sync is None:
        return []
    token, member.held_sync = member.held_sync, None
    return [Reply(token, result)]


def turn_away(member: Member | None) -> list[Reply]:
    """A member that leaves the group while it waits for an answer learns that it is no longer a member."""
    if member is None:
        return []
    # Differs: Kafka does not answer the waiting SyncGroup of a member that leaves. Fencepost answers UNKNOWN_MEMBER_ID.
    return [
        *release_join(member, JoinResult(errors.UNKNOWN_MEMBER_ID, "")),
        *release_sync(member, SyncResult(errors.UNKNOWN_MEMBER_ID)),
    ]


def release_all(group: ClassicGroup, error_code: int) -> list[Reply]:
    """Answer every request that the group holds with an error."""
    replies: list[Reply] = []
    for member in group.members.values():
        replies += release_join(member, JoinResult(error_code, member.member_id))
        replies += release_sync(member, SyncResult(error_code))
    return replies


# Differs: Kafka waits for static members in steps of their rebalance timeout, however short it is. Fencepost waits at
# least a second.
SHORTEST_REBALANCE_RETRY_MS = 1_000


def rebalance(group: ClassicGroup, config: GroupConfig, now_ms: int) -> Decision[list[Reply]]:
    """A member came or changed: all members must join, unless they are at it already."""
    if group.state is PREPARING_REBALANCE:
        return (yield from maybe_complete_join(group, now_ms))
    return (yield from prepare_rebalance(group, config, now_ms))


def after_a_leave(group: ClassicGroup, now_ms: int) -> Decision[list[Reply]]:
    if group.state in (STABLE, COMPLETING_REBALANCE):
        replies = cancel_syncs(group, errors.REBALANCE_IN_PROGRESS, now_ms)
        return replies + (yield from prepare_rejoin(group, now_ms))
    return (yield from maybe_complete_join(group, now_ms))


# The first phase: members join.


def prepare_rebalance(group: ClassicGroup, config: GroupConfig, now_ms: int) -> Decision[list[Reply]]:
    if group.state is not EMPTY:
        replies = cancel_syncs(group, errors.REBALANCE_IN_PROGRESS, now_ms)
        return replies + (yield from prepare_rejoin(group, now_ms))
    # The members of a new group start at about the same time: wait, so that they share one rebalance.
    delay_ms = config.group_initial_rebalance_delay_ms
    group.move_to(PREPARING_REBALANCE, now_ms)
    group.new_member_added = False
    group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
    group.join_deadline_ms = now_ms + delay_ms
    return (yield from _complete_join(group, now_ms)) if delay_ms == 0 else []


def prepare_rejoin(group: ClassicGroup, now_ms: int) -> Decision[list[Reply]]:
    group.pending_syncs.clear()
    group.sync_deadline_ms = None
    group.move_to(PREPARING_REBALANCE, now_ms)
    if group.all_members_joined():
        return (yield from _complete_join(group, now_ms))
    group.join_deadline_ms = now_ms + group.rebalance_timeout_ms()
    return []


def maybe_complete_join(group: ClassicGroup, now_ms: int) -> Decision[list[Reply]]:
    is_rejoin = group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY
    if is_rejoin and group.all_members_joined():
        return (yield from _complete_join(group, now_ms))
    return []


def _complete_join(group: ClassicGroup, now_ms: int) -> Decision[list[Reply]]:
    """Form the next generation of the members that have joined. Static members keep their place without joining."""
    assert group.state is PREPARING_REBALANCE
    group.join_deadline_ms = group.initial_delay = None
    for member in list(group.members.values()):
        if member.held_join is None and member.group_instance_id is None:
            group.remove(member.member_id)
    if not group.members:
        yield from _record_empty(group, now_ms)
        return []
    if not _elect_joined_leader(group):
        # Only static members are left and none has joined. The rebalance ends when one joins or their sessions end.
        retry_ms = max(group.rebalance_timeout_ms(), SHORTEST_REBALANCE_RETRY_MS)
        group.join_deadline_ms = now_ms + retry_ms
        return []
    group.start_next_generation(now_ms)
    replies: list[Reply] = []
    for member in group.members.values():
        replies += release_join(member, joined(group, member))
        group.expect_heartbeat(member, now_ms)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
    return replies


def _record_empty(group: ClassicGroup, now_ms: int) -> Decision[None]:
    error = yield [GroupChange(group.group_id, empty_record(group, now_ms))]
    if error:
        # The group is empty all the same. A restart brings the last recorded generation back, until its sessions end.
        group.start_next_generation(now_ms)


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """The leader stays if it has joined; otherwise the first member that has joined leads. False if there is none."""
    joined_ids = [m.member_id for m in group.members.values() if m.held_join is not None]
    if joined_ids and group.leader not in joined_ids:
        group.leader = joined_ids[0]
    return bool(joined_ids)


# The second phase: the leader assigns, see `members.sync`.


def cancel_syncs(group: ClassicGroup, error_code: int, now_ms: int) -> list[Reply]:
    if group.state is not COMPLETING_REBALANCE:
        return []
    replies: list[Reply] = []
    for member in group.members.values():
        member.assignment = b""
        if member.held_sync is not None:
            replies += release_sync(member, SyncResult(error_code))
            group.expect_heartbeat(member, now_ms)
    return replies


# Deadlines.


def expire(group: ClassicGroup, config: GroupConfig, now_ms: int) -> Decision[list[Reply]]:
    """Handle the deadlines that have passed, earliest first. A deadline set here is not due before the next call."""
    replies: list[Reply] = []
    expired: set[tuple[str, str]] = set()
    while (deadline := group.next_deadline()) and deadline.due_ms <= now_ms:
        _, what, member_id = deadline
        if (what, member_id) in expired:
            break
        expired.add((what, member_id))
        if what == "session":
            del group.session_deadlines[member_id]
            replies += yield from _expire_session(group, member_id, now_ms)
        elif what == "join":
            replies += yield from _expire_join(group, config, now_ms)
        else:
            group.sync_deadline_ms = None
            replies += yield from _expire_syncs(group, config, now_ms)
    return replies


def _expire_session(group: ClassicGroup, member_id: str, now_ms: int) -> Decision[list[Reply]]:
    if member_id in group.pending_members:
        group.remove(member_id)
        is_done = group.state is PREPARING_REBALANCE and group.all_members_joined()
        return (yield from _complete_join(group, now_ms)) if is_done else []
    member = group.members[member_id]
    is_held = member.held_join is not None or member.held_sync is not None
    if is_held and not member.is_new:
        return []  # It cannot send heartbeats now. Its session begins again with the reply.
    replies = turn_away(group.remove(member_id))
    if group.state is not PREPARING_REBALANCE:
        return replies + (yield from after_a_leave(group, now_ms))
    if group.all_members_joined():
        replies += yield from _complete_join(group, now_ms)
    return replies


def _expire_join(group: ClassicGroup, config: GroupConfig, now_ms: int) -> Decision[list[Reply]]:
    if group.initial_delay is None or not group.new_member_added or group.initial_delay.remaining_ms == 0:
        return (yield from _complete_join(group, now_ms))
    # A member came during the delay, so others may be on their way: wait once more, within limits.
    delay_ms, remaining_ms = group.initial_delay
    next_delay_ms = min(config.group_initial_rebalance_delay_ms, remaining_ms)
    group.new_member_added = False
    group.initial_delay = InitialDelay(next_delay_ms, max(remaining_ms - delay_ms, 0))
    group.join_deadline_ms = now_ms + next_delay_ms
    return []


def _expire_syncs(group: ClassicGroup, config: GroupConfig, now_ms: int) -> Decision[list[Reply]]:
    """Remove the members that joined and then never asked for their assignment."""
    replies: list[Reply] = []
    for member_id in sorted(group.pending_syncs):
        replies += turn_away(group.remove(member_id))
    return replies + (yield from prepare_rebalance(group, config, now_ms))


# The beginning and the end of a group in this process.


def resume(group: ClassicGroup, config: GroupConfig, now_ms: int) -> Decision[list[Reply]]:
    """The group was made from a record: from now on its members have a whole session to show up."""
    for member in group.members.values():
        group.expect_heartbeat(member, now_ms)
    # If the maximum size was lowered, members commit their offsets before they join again, and some then fail.
    is_too_large = len(group.members) > config.group_max_size
    # A group that has just become classic has no leader yet: its members share out what the others have left behind.
    has_no_leader = bool(group.members) and group.leader is None
    if is_too_large or has_no_leader:
        return (yield from prepare_rebalance(group, config, now_ms))
    return []
