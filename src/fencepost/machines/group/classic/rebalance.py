"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what runs out meanwhile.

Every function takes the group and `now_ms`, changes the group and returns effects. A join or sync that has
to wait is held under the caller's token, and answered exactly once by a later `Reply`. An assignment
reaches the members only after its record was appended (`Persist`). `expire` does what is due.

A rebalance in short: somebody comes, goes or changes (PreparingRebalance); all members join again, or the
rebalance timeout removes them; a leader is chosen and sends everybody's assignment (CompletingRebalance);
the record is appended and all held syncs are answered (Stable).

Follows the classic part of Kafka's GroupMetadataManager; KIP-62, 134, 345, 394, 559 and 814.
"""

from __future__ import annotations

from fencepost.machines.group.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    Group,
    GroupConfig,
    InitialDelay,
    Member,
    record_of,
    select_protocol,
    topics_of,
)
from fencepost.machines.group.classic.requests import (
    Effect,
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
from fencepost.protocol import errors

# Kafka: a new member cannot send heartbeats while its first join is held, so the join itself times out.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

# Differs: Kafka waits for static members in steps of their rebalance timeout, however short they ask for it.
SHORTEST_REBALANCE_RETRY_MS = 1_000

ERROR_AFTER_APPEND = {
    errors.UNKNOWN_TOPIC_OR_PARTITION: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS: errors.COORDINATOR_NOT_AVAILABLE,
    errors.REQUEST_TIMED_OUT: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_LEADER_OR_FOLLOWER: errors.NOT_COORDINATOR,
    errors.KAFKA_STORAGE_ERROR: errors.NOT_COORDINATOR,
    errors.MESSAGE_TOO_LARGE: errors.UNKNOWN_SERVER_ERROR,
    errors.RECORD_LIST_TOO_LARGE: errors.UNKNOWN_SERVER_ERROR,
}


def join(group: Group, cmd: Join, token: Token, new_member_id: str, config: GroupConfig, now_ms: int) -> list[Effect]:
    """Answer or hold a JoinGroup. `new_member_id` is for a member that has none yet."""
    if not _has_room(group, cmd.member_id, config):
        gone = group.remove(cmd.member_id)
        return [*_turn_away(gone), _refuse_join(token, "", errors.GROUP_MAX_SIZE_REACHED)]
    if group.state is DEAD:
        return [_refuse_join(token, cmd.member_id, errors.COORDINATOR_NOT_AVAILABLE)]
    if not group.supports(cmd.protocol_type, cmd.protocols):
        return [_refuse_join(token, cmd.member_id, errors.INCONSISTENT_GROUP_PROTOCOL)]
    if cmd.member_id:
        return _join_again(group, cmd, token, config, now_ms)
    if cmd.group_instance_id in group.static_members:
        return _join_as_static_successor(group, cmd, token, new_member_id, config, now_ms)
    if cmd.group_instance_id is None and cmd.version >= 4:
        # The member is only let in when it comes back with this id: a client that gave up waiting
        # and tries anew would otherwise leave a dead member behind each time.
        group.pending_members.add(new_member_id)
        group.session_deadlines[new_member_id] = now_ms + cmd.session_timeout_ms
        return [_refuse_join(token, new_member_id, errors.MEMBER_ID_REQUIRED)]
    return _add_member(group, cmd, token, new_member_id, config, now_ms)


def sync(group: Group, cmd: Sync, token: Token) -> list[Effect]:
    """Answer or hold a SyncGroup; the leader's is written down and releases all others."""
    error = _sync_error(group, cmd)
    if error:
        return [Reply(token, SyncResult(error))]
    member = group.members[cmd.member_id]
    group.pending_syncs.discard(cmd.member_id)
    if not group.pending_syncs:
        group.sync_deadline_ms = None
    if group.state is STABLE:
        return [Reply(token, _assignment_of(group, member))]
    effects = _release_sync(member, SyncResult(errors.REBALANCE_IN_PROGRESS))
    member.held_sync = token
    if group.is_leader(cmd.member_id):
        effects.append(_persist_assignments(group, dict(cmd.assignments)))
    return effects


def heartbeat(group: Group, cmd: Heartbeat, now_ms: int) -> int:
    """Keep the session of a member alive; the error code tells it what to do next."""
    if group.state is DEAD:
        return errors.COORDINATOR_NOT_AVAILABLE
    error = group.member_error(cmd.member_id, cmd.group_instance_id)
    if error:
        return error
    if cmd.generation_id != group.generation:
        return errors.ILLEGAL_GENERATION
    group.expect_heartbeat(group.members[cmd.member_id], now_ms)
    return errors.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else errors.NONE


def leave(group: Group, leavers: list[Leaver], token: Token, now_ms: int) -> list[Effect]:
    """Take members out, each with its own answer, and rebalance once for all of them."""
    if group.state is DEAD:
        return [Reply(token, LeaveResult(errors.COORDINATOR_NOT_AVAILABLE))]
    effects: list[Effect] = []
    answers: list[tuple[str, str | None, int]] = []
    for leaver in leavers:
        member_id, error = _who_leaves(group, leaver)
        if not error:
            effects += _turn_away(group.remove(member_id))
        answers.append((leaver.member_id, leaver.group_instance_id, error))
    if any(error == errors.NONE for _, _, error in answers):
        effects += _after_a_leave(group, now_ms)
    return [*effects, Reply(token, LeaveResult(errors.NONE, tuple(answers)))]


def expire(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    """Do what is due by now, earliest first. What this sets up anew is not due before the next call."""
    effects: list[Effect] = []
    expired: set[tuple[str, str]] = set()
    while (deadline := group.next_deadline()) and deadline.due_ms <= now_ms:
        _, what, member_id = deadline
        if (what, member_id) in expired:
            break
        expired.add((what, member_id))
        if what == "session":
            del group.session_deadlines[member_id]
            effects += _expire_session(group, member_id, now_ms)
        elif what == "join":
            effects += _expire_join(group, config, now_ms)
        else:
            group.sync_deadline_ms = None
            effects += _expire_syncs(group, config, now_ms)
    return effects


def resume(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    """A group was loaded from the log: its members have a whole session to show up."""
    for member in group.members.values():
        group.expect_heartbeat(member, now_ms)
    if len(group.members) > config.group_max_size:
        # The setting was lowered. Members commit their offsets before they join again, and some then fail.
        return _prepare_rebalance(group, config, now_ms)
    if group.members and group.leader is None:
        # What the members that went have left is nobody's until the others share it.
        return _prepare_rebalance(group, config, now_ms)
    return []


def unload(group: Group, now_ms: int) -> list[Effect]:
    """This broker no longer answers for the group: whoever waits looks for the coordinator again."""
    group.move_to(DEAD, now_ms)
    group.session_deadlines.clear()
    group.join_deadline_ms = group.sync_deadline_ms = group.initial_delay = None
    effects: list[Effect] = []
    for member in group.members.values():
        effects += _release_join(member, JoinResult(errors.NOT_COORDINATOR, member.member_id))
        effects += _release_sync(member, SyncResult(errors.NOT_COORDINATOR))
    return effects


def dismiss(group: Group, error_code: int) -> list[Effect]:
    """The group gives way to one of another protocol: whoever waits is told so."""
    effects: list[Effect] = []
    for member in group.members.values():
        effects += _release_join(member, JoinResult(error_code, member.member_id))
        effects += _release_sync(member, SyncResult(error_code))
    return effects


def start(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    """Let everybody join again."""
    return _prepare_rebalance(group, config, now_ms)


# JoinGroup.


def _has_room(group: Group, member_id: str, config: GroupConfig) -> bool:
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        # Kafka: who has joined counts, not who was a member: so a group above its size sheds who comes last.
        joined = sum(m.held_join is not None for m in group.members.values())
        return (member is not None and member.held_join is not None) or joined < config.group_max_size
    if group.state in (COMPLETING_REBALANCE, STABLE):
        return member is not None or len(group.members) < config.group_max_size
    return True


def _join_again(group: Group, cmd: Join, token: Token, config: GroupConfig, now_ms: int) -> list[Effect]:
    """A JoinGroup with a member id: the second half of a first join, or a member that rebalances."""
    if cmd.member_id in group.pending_members:
        if cmd.group_instance_id is not None:
            # Kafka: ids are handed out in advance to dynamic members only, so this client makes things up.
            return [_refuse_join(token, cmd.member_id, errors.UNKNOWN_SERVER_ERROR)]
        return _add_member(group, cmd, token, cmd.member_id, config, now_ms)
    error = group.member_error(cmd.member_id, cmd.group_instance_id)
    if error:
        return [_refuse_join(token, cmd.member_id, error)]
    member = group.members[cmd.member_id]
    is_unchanged = member.protocols == cmd.protocols
    if group.state is COMPLETING_REBALANCE and is_unchanged:
        # The reply to its first join was lost; the generation stands.
        return [Reply(token, _joined(group, member))]
    if group.state is STABLE and is_unchanged and not group.is_leader(cmd.member_id):
        return [Reply(token, _joined(group, member))]
    # In a stable group the leader's join always rebalances: it may know of new partitions to assign.
    effects = _update_member(member, cmd, token)
    return effects + _rebalance(group, config, now_ms)


def _add_member(
    group: Group, cmd: Join, token: Token, member_id: str, config: GroupConfig, now_ms: int
) -> list[Effect]:
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
    return _rebalance(group, config, now_ms)


def _update_member(member: Member, cmd: Join, token: Token) -> list[Effect]:
    # Differs: Kafka never answers the join that this one takes the place of.
    effects = _release_join(member, JoinResult(errors.REBALANCE_IN_PROGRESS, member.member_id))
    member.protocols = cmd.protocols
    member.rebalance_timeout_ms = cmd.time_to_rejoin_ms()
    member.session_timeout_ms = cmd.session_timeout_ms
    member.held_join = token
    return effects


def _join_as_static_successor(
    group: Group, cmd: Join, token: Token, new_member_id: str, config: GroupConfig, now_ms: int
) -> list[Effect]:
    """A static member is back without its member id: it takes its old place, and the old id is fenced."""
    if group.state is STABLE and group.protocol == _protocol_after_return(group, cmd):
        return [_persist_static_successor(group, cmd, token, new_member_id)]
    effects, member = _take_static_place(group, cmd, new_member_id, now_ms)
    member.held_join = token
    if group.state is PREPARING_REBALANCE:
        return effects + _maybe_complete_join(group, now_ms)
    # In CompletingRebalance the leader may already be assigning to the old id, so it must start over.
    return effects + _prepare_rebalance(group, config, now_ms)


def _protocol_after_return(group: Group, cmd: Join) -> str:
    offers = [
        cmd.protocols if m.group_instance_id == cmd.group_instance_id else m.protocols for m in group.members.values()
    ]
    return select_protocol(offers)


def _take_static_place(group: Group, cmd: Join, new_member_id: str, now_ms: int) -> tuple[list[Effect], Member]:
    assert cmd.group_instance_id is not None
    old, new = group.replace_static(cmd.group_instance_id, new_member_id)
    effects = _release_join(old, JoinResult(errors.FENCED_INSTANCE_ID, old.member_id))
    effects += _release_sync(old, SyncResult(errors.FENCED_INSTANCE_ID))
    new.protocols = cmd.protocols
    # Kafka: the session that begins now is still as long as the predecessor's.
    group.expect_heartbeat(new, now_ms)
    new.rebalance_timeout_ms = cmd.time_to_rejoin_ms()
    new.session_timeout_ms = cmd.session_timeout_ms
    return effects, new


def _persist_static_successor(group: Group, cmd: Join, token: Token, new_member_id: str) -> Persist:
    """In a stable group a static member comes back without a rebalance: only its new id is written down."""
    leader_before = group.leader
    draft = group.draft()
    _take_static_place(draft, cmd, new_member_id, now_ms=0)
    record = record_of(draft, {m.member_id: m.assignment for m in draft.members.values()})

    def then(error_code: int, now_ms: int) -> list[Effect]:
        if error_code:
            return [_refuse_join(token, "", error_after_append(error_code))]
        effects, member = _take_static_place(group, cmd, new_member_id, now_ms)
        group.subscribed_topics = topics_of(group)
        joined = _joined(group, member)
        if cmd.version < 9:
            # A leader that cannot be told to skip the assignment is told that another one leads.
            joined = joined._replace(leader=leader_before or "", members=())
        else:
            joined = joined._replace(skip_assignment=group.is_leader(new_member_id))
        return [*effects, Reply(token, joined)]

    return Persist(group.group_id, record, then)


# SyncGroup.


def _sync_error(group: Group, cmd: Sync) -> int:
    if group.state is DEAD:
        return errors.COORDINATOR_NOT_AVAILABLE
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


def _persist_assignments(group: Group, assignments: dict[str, bytes]) -> Persist:
    """Write the generation down; then everybody gets its assignment, empty if the leader left it out."""
    generation = group.generation

    def then(error_code: int, now_ms: int) -> list[Effect]:
        if group.state is not COMPLETING_REBALANCE or group.generation != generation:
            return []
        if error_code:
            return _abandon_generation(group, error_after_append(error_code), now_ms)
        group.move_to(STABLE, now_ms)
        effects: list[Effect] = []
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.held_sync is not None:
                effects += _release_sync(member, _assignment_of(group, member))
                group.expect_heartbeat(member, now_ms)
        return effects

    return Persist(group.group_id, record_of(group, assignments), then)


def _abandon_generation(group: Group, error_code: int, now_ms: int) -> list[Effect]:
    """The record could not be written: nobody gets an assignment, and everybody joins again."""
    effects = _cancel_syncs(group, error_code, now_ms)
    return effects + _prepare_rejoin(group, now_ms)


def error_after_append(error_code: int) -> int:
    """What a client is told when its group could not be written down, so that it tries again."""
    return ERROR_AFTER_APPEND.get(error_code, error_code)


# LeaveGroup.


def _who_leaves(group: Group, leaver: Leaver) -> tuple[str, int]:
    if not leaver.member_id:
        # An administrator removes a static member without knowing its member id.
        owner = group.static_members.get(leaver.group_instance_id or "")
        if leaver.group_instance_id is None or owner is None:
            return "", errors.UNKNOWN_MEMBER_ID
        return owner, errors.NONE
    if leaver.member_id in group.pending_members:
        return leaver.member_id, errors.NONE
    return leaver.member_id, group.member_error(leaver.member_id, leaver.group_instance_id)


def _after_a_leave(group: Group, now_ms: int) -> list[Effect]:
    if group.state in (STABLE, COMPLETING_REBALANCE):
        effects = _cancel_syncs(group, errors.REBALANCE_IN_PROGRESS, now_ms)
        return effects + _prepare_rejoin(group, now_ms)
    return _maybe_complete_join(group, now_ms)


# The two phases of a rebalance.


def _rebalance(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    if group.state is PREPARING_REBALANCE:
        return _maybe_complete_join(group, now_ms)
    return _prepare_rebalance(group, config, now_ms)


def _prepare_rebalance(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    if group.state is not EMPTY:
        effects = _cancel_syncs(group, errors.REBALANCE_IN_PROGRESS, now_ms)
        return effects + _prepare_rejoin(group, now_ms)
    # The members of a new group start at about the same time: wait, so that they share one rebalance.
    delay_ms = config.group_initial_rebalance_delay_ms
    group.move_to(PREPARING_REBALANCE, now_ms)
    group.new_member_added = False
    group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
    group.join_deadline_ms = now_ms + delay_ms
    return _complete_join(group, now_ms) if delay_ms == 0 else []


def _prepare_rejoin(group: Group, now_ms: int) -> list[Effect]:
    group.pending_syncs.clear()
    group.sync_deadline_ms = None
    group.move_to(PREPARING_REBALANCE, now_ms)
    if group.all_members_joined():
        return _complete_join(group, now_ms)
    group.join_deadline_ms = now_ms + group.rebalance_timeout_ms()
    return []


def _maybe_complete_join(group: Group, now_ms: int) -> list[Effect]:
    is_rejoin = group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY
    return _complete_join(group, now_ms) if is_rejoin and group.all_members_joined() else []


def _complete_join(group: Group, now_ms: int) -> list[Effect]:
    """Go on with who has joined. Static members keep their place until their session ends."""
    assert group.state is PREPARING_REBALANCE
    group.join_deadline_ms = group.initial_delay = None
    for member in list(group.members.values()):
        if member.held_join is None and member.group_instance_id is None:
            group.remove(member.member_id)
    if group.members and not _elect_joined_leader(group):
        # Only static members are left and none has joined: their sessions will end this.
        retry_ms = max(group.rebalance_timeout_ms(), SHORTEST_REBALANCE_RETRY_MS)
        group.join_deadline_ms = now_ms + retry_ms
        return []
    group.start_next_generation(now_ms)
    if group.state is EMPTY:
        # If it cannot be written, a restart brings the last generation back, and its sessions run out.
        return [Persist(group.group_id, record_of(group, {}), lambda *_: [])]
    effects: list[Effect] = []
    for member in group.members.values():
        effects += _release_join(member, _joined(group, member))
        group.expect_heartbeat(member, now_ms)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
    return effects


def _elect_joined_leader(group: Group) -> bool:
    """The leader stays if it has joined; else the first member that has. False if nobody has."""
    joined = [m.member_id for m in group.members.values() if m.held_join is not None]
    if joined and group.leader not in joined:
        group.leader = joined[0]
    return bool(joined)


def _cancel_syncs(group: Group, error_code: int, now_ms: int) -> list[Effect]:
    if group.state is not COMPLETING_REBALANCE:
        return []
    effects: list[Effect] = []
    for member in group.members.values():
        member.assignment = b""
        if member.held_sync is not None:
            effects += _release_sync(member, SyncResult(error_code))
            group.expect_heartbeat(member, now_ms)
    return effects


# What runs out.


def _expire_session(group: Group, member_id: str, now_ms: int) -> list[Effect]:
    if member_id in group.pending_members:
        group.remove(member_id)
        is_done = group.state is PREPARING_REBALANCE and group.all_members_joined()
        return _complete_join(group, now_ms) if is_done else []
    member = group.members[member_id]
    is_waiting = member.held_join is not None or member.held_sync is not None
    if is_waiting and not member.is_new:
        return []  # It cannot send heartbeats now. Its session begins again with the reply.
    effects = _turn_away(group.remove(member_id))
    if group.state is PREPARING_REBALANCE:
        return effects + (_complete_join(group, now_ms) if group.all_members_joined() else [])
    return effects + _after_a_leave(group, now_ms)


def _expire_join(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    if group.initial_delay is None or not group.new_member_added or group.initial_delay.remaining_ms == 0:
        return _complete_join(group, now_ms)
    # Somebody came during the delay, so others may be on their way: wait once more, within limits.
    delay_ms, remaining_ms = group.initial_delay
    next_delay_ms = min(config.group_initial_rebalance_delay_ms, remaining_ms)
    group.new_member_added = False
    group.initial_delay = InitialDelay(next_delay_ms, max(remaining_ms - delay_ms, 0))
    group.join_deadline_ms = now_ms + next_delay_ms
    return []


def _expire_syncs(group: Group, config: GroupConfig, now_ms: int) -> list[Effect]:
    """Members that joined and then never asked for their assignment are taken out."""
    effects: list[Effect] = []
    for member_id in sorted(group.pending_syncs):
        effects += _turn_away(group.remove(member_id))
    return effects + _prepare_rebalance(group, config, now_ms)


# Replies.


def _refuse_join(token: Token, member_id: str, error_code: int) -> Reply:
    return Reply(token, JoinResult(error_code, member_id))


def _joined(group: Group, member: Member) -> JoinResult:
    return JoinResult(
        error_code=errors.NONE,
        member_id=member.member_id,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        members=group.joined_members() if group.is_leader(member.member_id) else (),
    )


def _assignment_of(group: Group, member: Member) -> SyncResult:
    return SyncResult(errors.NONE, group.protocol_type, group.protocol, member.assignment)


def _turn_away(member: Member | None) -> list[Effect]:
    """Whoever leaves the group while a request of its is held learns that it is no longer a member."""
    if member is None:
        return []
    # Differs: Kafka does not answer a held sync here.
    return [
        *_release_join(member, JoinResult(errors.UNKNOWN_MEMBER_ID, "")),
        *_release_sync(member, SyncResult(errors.UNKNOWN_MEMBER_ID)),
    ]


def _release_join(member: Member, result: JoinResult) -> list[Effect]:
    if member.held_join is None:
        return []
    token, member.held_join = member.held_join, None
    return [Reply(token, result)]


def _release_sync(member: Member, result: SyncResult) -> list[Effect]:
    if member.held_sync is None:
        return []
    token, member.held_sync = member.held_sync, None
    return [Reply(token, result)]
