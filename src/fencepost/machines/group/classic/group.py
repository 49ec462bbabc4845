"""One consumer group of the classic protocol: its members, its state, and what of it is kept on disk.

Holds the group and answers questions about it; the moves of the protocol are in `rebalance.py`.
What survives a restart is a `GroupRecord`: `record_of` makes it, `restore` is its inverse.
Everything else (held requests, deadlines, members on their way in) is forgotten with the process,
and clients recover by joining again.

Follows Kafka's ClassicGroup and ClassicGroupMember; static members are KIP-345.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from fencepost.machines.group.classic.requests import GroupRecord, MemberRecord, Protocols, Token
from fencepost.protocol import errors

CONSUMER_PROTOCOL_TYPE = "consumer"


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = State

LEGAL: Mapping[State, Set[State]] = {
    EMPTY: {PREPARING_REBALANCE, DEAD},
    PREPARING_REBALANCE: {EMPTY, COMPLETING_REBALANCE, DEAD},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE, STABLE, DEAD},
    STABLE: {PREPARING_REBALANCE, DEAD},
    DEAD: {DEAD},
}


@dataclass(slots=True)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # A member is new until its first join is answered: until then it has no id to send heartbeats with.
    is_new: bool = False
    held_join: Token | None = None
    held_sync: Token | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The broker's settings for groups, under Kafka's names."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    # Groups of the consumer protocol.
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_assignment_interval_ms: int = 1_000
    consumer_migration_policy: str = "bidirectional"


class InitialDelay(NamedTuple):
    """How long the first rebalance of a group has waited this time, and may still wait for more members."""

    delay_ms: int
    remaining_ms: int


class Deadline(NamedTuple):
    """What the group waits for, and until when. `member_id` is set for a session only."""

    due_ms: int
    what: str  # "session", "join" or "sync".
    member_id: str = ""


@dataclass(slots=True)
class Group:
    group_id: str
    state: State = EMPTY
    previous_state: State = DEAD
    # When the group came into its state; None in records of old layouts, which did not say.
    state_timestamp_ms: int | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # Instance id -> member id.
    pending_members: set[str] = field(default_factory=set)  # Ids handed out with MEMBER_ID_REQUIRED.
    pending_syncs: set[str] = field(default_factory=set)  # Members of this generation that have not synced.
    # None if unknown: no protocol chosen yet, not consumers, or a subscription that does not parse.
    subscribed_topics: frozenset[str] | None = None
    new_member_added: bool = False
    session_deadlines: dict[str, int] = field(default_factory=dict)
    join_deadline_ms: int | None = None
    initial_delay: InitialDelay | None = None  # Set while the join deadline is that of a first rebalance.
    sync_deadline_ms: int | None = None

    # Questions.

    def is_empty(self) -> bool:
        return self.state is EMPTY

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def all_members_joined(self) -> bool:
        return not self.pending_members and all(m.held_join is not None for m in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def member_error(self, member_id: str, group_instance_id: str | None) -> int:
        """Whether this id speaks for a member: NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return errors.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return errors.FENCED_INSTANCE_ID
        return errors.NONE if member_id in self.members else errors.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could be in the group: one of them is everybody's."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        common = common_protocols(m.protocols for m in self.members.values())
        return bool(protocols) and (common is None or any(name in common for name, _ in protocols))

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            # Kafka: consumers whose subscription is not known may be reading any topic.
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def joined_members(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """What the leader is told, to make the assignment from."""
        members = self.members.values()
        return tuple((m.member_id, m.group_instance_id, m.metadata(self.protocol)) for m in members)

    def next_deadline_ms(self) -> int | None:
        """When `rebalance.expire` has something to do, if nothing happens before."""
        due = [ms for ms in (self.join_deadline_ms, self.sync_deadline_ms) if ms is not None]
        return min((*due, *self.session_deadlines.values()), default=None)

    def next_deadline(self) -> Deadline | None:
        """The first thing to run out, if nothing happens before."""
        due = [Deadline(due_ms, "session", member_id) for member_id, due_ms in self.session_deadlines.items()]
        if self.join_deadline_ms is not None:
            due.append(Deadline(self.join_deadline_ms, "join"))
        if self.sync_deadline_ms is not None:
            due.append(Deadline(self.sync_deadline_ms, "sync"))
        return min(due, default=None)

    def draft(self) -> Group:
        """A copy on which a change of membership can be tried and recorded before it is made."""
        return replace(
            self,
            members={member_id: replace(member) for member_id, member in self.members.items()},
            static_members=dict(self.static_members),
            pending_syncs=set(self.pending_syncs),
            session_deadlines=dict(self.session_deadlines),
        )

    # Changes. None of them decides anything; `rebalance.py` does.

    def move_to(self, state: State, now_ms: int) -> None:
        assert state in LEGAL[self.state], f"group {self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member, or an id that was handed out; the next member in line leads if the leader goes."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)
        self.session_deadlines.pop(member_id, None)
        return member

    def replace_static(self, group_instance_id: str, new_member_id: str) -> tuple[Member, Member]:
        """Give the place of a static member to its new incarnation; return the old member and the new."""
        old = self.members.pop(self.static_members[group_instance_id])
        new = replace(old, member_id=new_member_id, held_join=None, held_sync=None, is_new=False)
        self.members[new_member_id] = new
        self.static_members[group_instance_id] = new_member_id
        if self.leader == old.member_id:
            self.leader = new_member_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.remove(old.member_id)
            self.pending_syncs.add(new_member_id)
        self.session_deadlines.pop(old.member_id, None)
        return old, new

    def expect_heartbeat(self, member: Member, now_ms: int) -> None:
        self.session_deadlines[member.member_id] = now_ms + member.session_timeout_ms

    def start_next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol = select_protocol([m.protocols for m in self.members.values()])
            self.move_to(COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.move_to(EMPTY, now_ms)
        self.subscribed_topics = topics_of(self)


def common_protocols(offers: Iterable[Protocols]) -> set[str] | None:
    """The names that all members can use; None if there are no members, who then could use any."""
    common: set[str] | None = None
    for protocols in offers:
        names = {name for name, _ in protocols}
        common = names if common is None else common & names
    return common


def select_protocol(offers: list[Protocols]) -> str:
    """Each member votes for the first of its protocols that all members can use; most votes win."""
    common = common_protocols(offers)
    assert common, "no member is let in without a protocol in common with the others"
    votes: dict[str, int] = {}
    for protocols in offers:
        vote = next(name for name, _ in protocols if name in common)
        votes[vote] = votes.get(vote, 0) + 1
    # Differs: of protocols with equal votes Kafka takes the first by hash; here it is the longest member's.
    return max(votes, key=lambda name: votes[name])


def topics_of(group: Group) -> frozenset[str] | None:
    """The topics that the members of a consumer group subscribe to; None where that cannot be known."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        subscribed = decode_subscribed_topics(member.metadata(group.protocol))
        if subscribed is None:
            return None
        topics.update(subscribed)
    return frozenset(topics)


def decode_subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics in a ConsumerProtocolSubscription, of which every version begins as v0 does."""
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    if len(metadata) < 6 or count < 0:
        return None
    topics: list[str] = []
    pos = 6
    for _ in range(count):
        size = int.from_bytes(metadata[pos : pos + 2], "big")
        name = metadata[pos + 2 : pos + 2 + size]
        pos += 2 + size
        if pos > len(metadata):
            return None
        try:
            topics.append(name.decode())
        except UnicodeDecodeError:
            return None
    return topics


def record_of(group: Group, assignments: Mapping[str, bytes]) -> GroupRecord:
    """What to keep of a group, once its members have these assignments."""
    return GroupRecord(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=tuple(
            MemberRecord(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata(group.protocol),
                assignment=assignments.get(m.member_id, b""),
            )
            for m in group.members.values()
        ),
    )


def restore(group_id: str, record: GroupRecord) -> Group:
    """The group as its last record describes it. No session runs yet: see `rebalance.resume`.

    Members without a leader were about to join again: their group had just become classic.
    """
    group = Group(
        group_id,
        state=STABLE if record.members else EMPTY,
        state_timestamp_ms=None if record.current_state_timestamp == -1 else record.current_state_timestamp,
        generation=record.generation,
        protocol_type=record.protocol_type or None,
        protocol=record.protocol,
        leader=record.leader,
    )
    if record.members and record.protocol is None:
        group.protocol = ""
    for m in record.members:
        # Kafka: only the metadata of the chosen protocol is recorded, so that is all a member offers now.
        offered = ((record.protocol or "", m.subscription),)
        rebalance_timeout_ms = m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout
        group.add(
            Member(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=m.session_timeout,
                protocols=offered,
                assignment=m.assignment,
            ),
            record.protocol_type,
        )
    if record.leader is None:
        group.leader = None
    elif group.leader not in group.members:
        group.leader = next(iter(group.members), None)
    group.subscribed_topics = topics_of(group)
    return group
