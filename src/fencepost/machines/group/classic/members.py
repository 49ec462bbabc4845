"""The requests of the classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each is a decision (see `decision.py`) about one group that returns the replies that are due. A join or sync that has to
wait is held under the caller's token, and is answered exactly once, by this or by a later decision. What a request sets
in motion is in `rebalance.py`.

Follows the classic part of Kafka's GroupMetadataManager; KIP-62, 134, 345, 394, 559 and 814.
"""

from __future__ import annotations

from fencepost.machines.group.classic.group import (
    COMPLETING_REBALANCE,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    Member,
    metadata_of,
    record_of,
    select_protocol,
)
from fencepost.machines.group.classic.rebalance import (
    after_a_leave,
    assignment_of,
    cancel_syncs,
    joined,
    maybe_complete_join,
    prepare_rebalance,
    prepare_rejoin,
    rebalance,
    refuse_join,
    release_join,
    release_sync,
    turn_away,
)
from fencepost.machines.group.classic.requests import (
    GroupChange,
    GroupRecord,
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
from fencepost.machines.group.decision import Decision
from fencepost.protocol import errors

# Kafka: a new member cannot send heartbeats while its first join is held, so the join itself times out.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

ERROR_AFTER_APPEND = {
    errors.UNKNOWN_TOPIC_OR_PARTITION: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS: errors.COORDINATOR_NOT_AVAILABLE,
    errors.REQUEST_TIMED_OUT: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_LEADER_OR_FOLLOWER: errors.NOT_COORDINATOR,
    errors.KAFKA_STORAGE_ERROR: errors.NOT_COORDINATOR,
    errors.MESSAGE_TOO_LARGE: errors.UNKNOWN_SERVER_ERROR,
    errors.RECORD_LIST_TOO_LARGE: errors.UNKNOWN_SERVER_ERROR,
}


def error_after_append(error_code: int) -> int:
    """The error for a client when a record of its group could not be appended: one after which it tries again."""
    return ERROR_AFTER_APPEND.get(error_code, error_code)


# JoinGroup.


def join(
    group: ClassicGroup, cmd: Join, token: Token, new_member_id: str, config: GroupConfig, now_ms: int
) -> Decision[list[Reply]]:
    """Answer or hold a JoinGroup. `new_member_id` is for a member that has none yet."""
    if not _has_room(group, cmd.member_id, config):
        gone = group.remove(cmd.member_id)
        return [*turn_away(gone), refuse_join(token, "", errors.GROUP_MAX_SIZE_REACHED)]
    if not group.supports(cmd.protocol_type, cmd.protocols):
        return [refuse_join(token, cmd.member_id, errors.INCONSISTENT_GROUP_PROTOCOL)]
    if cmd.member_id:
        return (yield from _join_again(group, cmd, token, config, now_ms))
    if cmd.group_instance_id in group.static_members:
        return (yield from _join_as_static_successor(group, cmd, token, new_member_id, config, now_ms))
    if cmd.group_instance_id is None and cmd.version >= 4:
        # The member is let in only when it comes back with this id. Otherwise a client that gave up waiting and
        # starts anew would leave a dead member behind each time.
        group.pending_members.add(new_member_id)
        group.session_deadlines[new_member_id] = now_ms + cmd.session_timeout_ms
        return [refuse_join(token, new_member_id, errors.MEMBER_ID_REQUIRED)]
    return (yield from _add_member(group, cmd, token, new_member_id, config, now_ms))


def _has_room(group: ClassicGroup, member_id: str, config: GroupConfig) -> bool:
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        # Kafka: the members that have joined count, not all that were members, so a group above its size loses those
        # that join last.
        joined_count = sum(m.held_join is not None for m in group.members.values())
        return (member is not None and member.held_join is not None) or joined_count < config.group_max_size
    if group.state in (COMPLETING_REBALANCE, STABLE):
        return member is not None or len(group.members) < config.group_max_size
    return True


def _join_again(
    group: ClassicGroup, cmd: Join, token: Token, config: GroupConfig, now_ms: int
) -> Decision[list[Reply]]:
    """A JoinGroup with a member id: the second half of a first join, or a member that rebalances."""
    if cmd.member_id in group.pending_members:
        if cmd.group_instance_id is not None:
            # Kafka: ids are handed out in advance to dynamic members only, so this client is in error.
            return [refuse_join(token, cmd.member_id, errors.UNKNOWN_SERVER_ERROR)]
        return (yield from _add_member(group, cmd, token, cmd.member_id, config, now_ms))
    error = group.member_error(cmd.member_id, cmd.group_instance_id)
    if error:
        return [refuse_join(token, cmd.member_id, error)]
    member = group.members[cmd.member_id]
    is_unchanged = member.protocols == cmd.protocols
    if group.state is COMPLETING_REBALANCE and is_unchanged:
        # The reply to its first join was lost; the generation stands.
        return [Reply(token, joined(group, member))]
    if group.state is STABLE and is_unchanged and not group.is_leader(cmd.member_id):
        return [Reply(token, joined(group, member))]
    # In a stable group the leader's join always rebalances: it may know of new partitions to assign.
    replies = _update_member(member, cmd, token)
    return replies + (yield from rebalance(group, config, now_ms))


def _add_member(
    group: ClassicGroup, cmd: Join, token: Token, member_id: str, config: GroupConfig, now_ms: int
) -> Decision[list[Reply]]:
    member = Member(
        member_id=member_id,
        group_instance_id=cmd.group_instance_id,
        client_id=cmd.client_id,
        client_host=cmd.client_host,
        rebalance_timeout_ms=cmd.time_to_rejoin_ms(),
        session_timeout_ms=cmd.session_timeout_ms,
        protocols=cmd.protocols,
        is_new=True,
        held_join=token,
    )
    if group.initial_delay is not None:
        group.new_member_added = True
    group.add(member, cmd.protocol_type)
    group.session_deadlines[member_id] = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    return (yield from rebalance(group, config, now_ms))


def _update_member(member: Member, cmd: Join, token: Token) -> list[Reply]:
    # Differs: Kafka never answers a JoinGroup that a later one of the same member replaces. Fencepost answers
    # REBALANCE_IN_PROGRESS.
    replies = release_join(member, JoinResult(errors.REBALANCE_IN_PROGRESS, member.member_id))
    member.protocols = cmd.protocols
    member.rebalance_timeout_ms = cmd.time_to_rejoin_ms()
    member.session_timeout_ms = cmd.session_timeout_ms
    member.held_join = token
    return replies


# A static member that is back without its member id: it takes its old place, and the old id is fenced.


def _join_as_static_successor(
    group: ClassicGroup, cmd: Join, token: Token, new_member_id: str, config: GroupConfig, now_ms: int
) -> Decision[list[Reply]]:
    assert cmd.group_instance_id is not None
    if group.state is STABLE and group.protocol == _protocol_after_return(group, cmd):
        return (yield from _succeed_without_rebalance(group, cmd, token, new_member_id, now_ms))
    old, new = group.replace_static(cmd.group_instance_id, new_member_id)
    replies = release_join(old, JoinResult(errors.FENCED_INSTANCE_ID, old.member_id))
    replies += release_sync(old, SyncResult(errors.FENCED_INSTANCE_ID))
    _begin_session(group, new, old, now_ms)
    new.protocols = cmd.protocols
    new.rebalance_timeout_ms = cmd.time_to_rejoin_ms()
    new.session_timeout_ms = cmd.session_timeout_ms
    new.held_join = token
    if group.state is PREPARING_REBALANCE:
        return replies + (yield from maybe_complete_join(group, now_ms))
    # In CompletingRebalance the leader may already be assigning to the old id, so it must start over.
    return replies + (yield from prepare_rebalance(group, config, now_ms))


def _protocol_after_return(group: ClassicGroup, cmd: Join) -> str:
    offers = [
        cmd.protocols if m.group_instance_id == cmd.group_instance_id else m.protocols for m in group.members.values()
    ]
    return select_protocol(offers)


def _succeed_without_rebalance(
    group: ClassicGroup, cmd: Join, token: Token, new_member_id: str, now_ms: int
) -> Decision[list[Reply]]:
    """A stable group stays as it is: only the new id of the static member is recorded."""
    leader_before = group.leader
    old = group.members[group.static_members[cmd.group_instance_id or ""]]
    owes_sync = old.member_id in group.pending_syncs
    error = yield [GroupChange(group.group_id, _record_with_successor(group, old.member_id, cmd, new_member_id))]
    if error:
        return [refuse_join(token, "", error_after_append(error))]
    new = group.members[new_member_id]
    new.protocols = cmd.protocols
    _begin_session(group, new, old, now_ms)
    if owes_sync:
        group.pending_syncs.add(new_member_id)
    result = joined(group, new)
    if cmd.version < 9:
        # The response has no field to make the leader skip the assignment, so it names the old id as the leader.
        result = result._replace(leader=leader_before or "", members=())
    else:
        result = result._replace(skip_assignment=group.is_leader(new_member_id))
    return [Reply(token, result)]


def _record_with_successor(group: ClassicGroup, old_id: str, cmd: Join, new_member_id: str) -> GroupRecord:
    assert group.recorded is not None
    [old] = [m for m in group.recorded.members if m.member_id == old_id]
    new = old._replace(
        member_id=new_member_id,
        rebalance_timeout=cmd.time_to_rejoin_ms(),
        session_timeout=cmd.session_timeout_ms,
        subscription=metadata_of(cmd.protocols, group.protocol),
    )
    return group.recorded._replace(
        leader=new_member_id if group.is_leader(old_id) else group.leader,
        members=(*(m for m in group.recorded.members if m.member_id != old_id), new),
    )


def _begin_session(group: ClassicGroup, new: Member, old: Member, now_ms: int) -> None:
    # Kafka: the first session of the successor is still as long as its predecessor's.
    group.session_deadlines[new.member_id] = now_ms + old.session_timeout_ms


# SyncGroup.


def sync(group: ClassicGroup, cmd: Sync, token: Token, now_ms: int) -> Decision[list[Reply]]:
    """Answer or hold a SyncGroup; the leader's assignments are recorded, and then all held syncs are answered."""
    error = _sync_error(group, cmd)
    if error:
        return [Reply(token, SyncResult(error))]
    member = group.members[cmd.member_id]
    group.pending_syncs.discard(cmd.member_id)
    if not group.pending_syncs:
        group.sync_deadline_ms = None
    if group.state is STABLE:
        return [Reply(token, assignment_of(group, member))]
    replies = release_sync(member, SyncResult(errors.REBALANCE_IN_PROGRESS))
    member.held_sync = token
    if group.is_leader(cmd.member_id):
        replies += yield from _assign(group, cmd, now_ms)
    return replies


def _sync_error(group: ClassicGroup, cmd: Sync) -> int:
    error = group.member_error(cmd.member_id, cmd.group_instance_id)
    if error:
        return error
    if cmd.generation_id != group.generation:
        return errors.ILLEGAL_GENERATION
    if _differ(cmd.protocol_type, group.protocol_type) or _differ(cmd.protocol_name, group.protocol):
        return errors.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING_REBALANCE:
        return errors.REBALANCE_IN_PROGRESS
    return errors.NONE


def _differ(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual


def _assign(group: ClassicGroup, cmd: Sync, now_ms: int) -> Decision[list[Reply]]:
    """Record the generation; then each member gets its assignment, empty if the leader left it out."""
    error = yield [GroupChange(group.group_id, record_of(group, cmd.assignments, now_ms))]
    if error:
        # No member gets an assignment that a restart would lose: all of them join again.
        replies = cancel_syncs(group, error_after_append(error), now_ms)
        return replies + (yield from prepare_rejoin(group, now_ms))
    replies = []
    for member in group.members.values():
        if member.held_sync is not None:
            replies += release_sync(member, assignment_of(group, member))
            group.expect_heartbeat(member, now_ms)
    return replies


# Heartbeat and LeaveGroup.


def heartbeat(group: ClassicGroup, cmd: Heartbeat, now_ms: int) -> int:
    """Keep the session of a member alive; the error code tells it what to do next."""
    error = group.member_error(cmd.member_id, cmd.group_instance_id)
    if error:
        return error
    if cmd.generation_id != group.generation:
        return errors.ILLEGAL_GENERATION
    group.expect_heartbeat(group.members[cmd.member_id], now_ms)
    return errors.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else errors.NONE


def leave(group: ClassicGroup, leavers: list[Leaver], token: Token, now_ms: int) -> Decision[list[Reply]]:
    """Take members out, each with its own answer, and rebalance once for all of them."""
    replies: list[Reply] = []
    answers: list[tuple[str, str | None, int]] = []
    for leaver in leavers:
        member_id, error = _who_leaves(group, leaver)
        if not error:
            replies += turn_away(group.remove(member_id))
        answers.append((leaver.member_id, leaver.group_instance_id, error))
    if any(error == errors.NONE for _, _, error in answers):
        replies += yield from after_a_leave(group, now_ms)
    return [*replies, Reply(token, LeaveResult(errors.NONE, tuple(answers)))]


def _who_leaves(group: ClassicGroup, leaver: Leaver) -> tuple[str, int]:
    if not leaver.member_id:
        # An administrator removes a static member without knowing its member id.
        owner = group.static_members.get(leaver.group_instance_id or "")
        if leaver.group_instance_id is None or owner is None:
            return "", errors.UNKNOWN_MEMBER_ID
        return owner, errors.NONE
    if leaver.member_id in group.pending_members:
        return leaver.member_id, errors.NONE
    return leaver.member_id, group.member_error(leaver.member_id, leaver.group_instance_id)
