"""Answers to members of a classic group, at once or to requests that were held."""

from __future__ import annotations

from fencepost.machines.group.classic.group import ClassicGroup, Member
from fencepost.machines.group.classic.requests import JoinResult, Reply, SyncResult, Token
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
