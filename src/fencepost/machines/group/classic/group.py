"""One group of the classic protocol: its members, its state, and the part that is kept in the log.

`recorded` is the durable part: the group's last record in `__consumer_offsets`. Only `apply` changes it, for a record
that was just appended and for one that is loaded. The other fields say where the protocol stands now. A rebalance runs
ahead of the log: members come and go and a generation is formed before its record is written. Everything that the
record does not say (held requests, deadlines, members that are about to join) is lost with the process, and clients
recover by joining again.

The moves of the protocol are in `members.py` and `rebalance.py`. Follows Kafka's ClassicGroup and ClassicGroupMember;
static members are KIP-345.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from fencepost.machines.group.classic.requests import ClassicMemberRecord, GroupRecord, Protocols, Token
from fencepost.protocol import errors

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE = GroupState

# Kafka's state Dead is missing: a group that ends is gone from its shard in the same step.
LEGAL: Mapping[GroupState, Set[GroupState]] = {
    EMPTY: {PREPARING_REBALANCE},
    PREPARING_REBALANCE: {EMPTY, COMPLETING_REBALANCE},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE, STABLE},
    STABLE: {PREPARING_REBALANCE},
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
        return metadata_of(self.protocols, protocol_name)


class InitialDelay(NamedTuple):
    """For how long the first rebalance of a group waits this time, and may still wait for more members."""

    delay_ms: int
    remaining_ms: int


class Deadline(NamedTuple):
    """A deadline of the group, and its kind. `member_id` is set for a session only."""

    due_ms: int
    what: str  # "session", "join" or "sync".
    member_id: str = ""


@dataclass(slots=True)
class ClassicGroup:
    group_id: str
    recorded: GroupRecord | None = None  # The last record in the log. None: there is none.
    # Where the protocol stands: as recorded, or ahead of it.
    state: GroupState = EMPTY
    previous_state: GroupState | None = None
    # When the group entered its state; None after a record of an old layout, which lacks this field.
    state_timestamp_ms: int | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # Instance id -> member id.
    # None if unknown: no protocol chosen yet, not consumers, or a subscription that does not parse.
    subscribed_topics: frozenset[str] | None = None
    # Never recorded.
    pending_members: set[str] = field(default_factory=set)  # Ids handed out with MEMBER_ID_REQUIRED.
    pending_syncs: set[str] = field(default_factory=set)  # Members of this generation that have not synced.
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
        """Whether a member with these protocols could be in the group: all members support one of them."""
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
        """The members as the leader sees them, to make the assignment from."""
        members = self.members.values()
        return tuple((m.member_id, m.group_instance_id, m.metadata(self.protocol)) for m in members)

    def next_deadline_ms(self) -> int | None:
        """When to call `rebalance.expire`, if nothing happens before."""
        due = [ms for ms in (self.join_deadline_ms, self.sync_deadline_ms) if ms is not None]
        return min((*due, *self.session_deadlines.values()), default=None)

    def next_deadline(self) -> Deadline | None:
        """The earliest deadline."""
        due = [Deadline(due_ms, "session", member_id) for member_id, due_ms in self.session_deadlines.items()]
        if self.join_deadline_ms is not None:
            due.append(Deadline(self.join_deadline_ms, "join"))
        if self.sync_deadline_ms is not None:
            due.append(Deadline(self.sync_deadline_ms, "sync"))
        return min(due, default=None)

    # The durable part.

    def apply(self, record: GroupRecord) -> None:
        """Take over the record's state. Members that stay keep their held requests, sessions and offered protocols.

        A group that runs in this process may only make a legal move. While the log is loaded it may make any: the
        rebalance that led from one record to the next is not in the log.
        """
        state = STABLE if record.members else EMPTY
        if self._is_running() and state is not self.state:
            self._check_move(state)
        self.recorded = record
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = None if record.current_state_timestamp == -1 else record.current_state_timestamp
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = "" if record.members and record.protocol is None else record.protocol
        before = self.members
        self.members = {
            m.member_id: _member_of(m, record.protocol or "", before.get(m.member_id)) for m in record.members
        }
        for member_id in before.keys() - self.members.keys():
            self._forget(member_id)
        self.static_members = {
            m.group_instance_id: m.member_id for m in record.members if m.group_instance_id is not None
        }
        self.leader = record.leader
        if record.leader is not None and record.leader not in self.members:
            self.leader = next(iter(self.members), None)
        self.subscribed_topics = topics_of(self)

    def _is_running(self) -> bool:
        return self.state in (PREPARING_REBALANCE, COMPLETING_REBALANCE) or bool(self.session_deadlines)

    def _check_move(self, state: GroupState) -> None:
        assert state in LEGAL[self.state], f"group {self.group_id}: {self.state} -> {state}"

    def _forget(self, member_id: str) -> None:
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)
        self.session_deadlines.pop(member_id, None)

    # Changes that run ahead of the log. `members.py` and `rebalance.py` decide when to make them.

    def move_to(self, state: GroupState, now_ms: int) -> None:
        self._check_move(state)
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
        """Forget a member, or an id that was handed out. If the leader goes, the oldest member leads."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._forget(member_id)
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


def metadata_of(protocols: Protocols, protocol_name: str | None) -> bytes:
    return next(metadata for name, metadata in protocols if name == protocol_name)


def common_protocols(offers: Iterable[Protocols]) -> set[str] | None:
    """The names of the protocols that all members support; None if there are no members, so that any would do."""
    common: set[str] | None = None
    for protocols in offers:
        names = {name for name, _ in protocols}
        common = names if common is None else common & names
    return common


def select_protocol(offers: list[Protocols]) -> str:
    """Each member votes for the first of its protocols that all members support; most votes win."""
    common = common_protocols(offers)
    assert common, "no member is let in without a protocol in common with the others"
    votes: dict[str, int] = {}
    for protocols in offers:
        vote = next(name for name, _ in protocols if name in common)
        votes[vote] = votes.get(vote, 0) + 1
    # Differs: Kafka breaks a tie between protocols by hash order. Fencepost chooses the protocol with the first vote.
    return max(votes, key=lambda name: votes[name])


def topics_of(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that the members of a group of consumers subscribe to; None if they are unknown."""
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
    """The topics in a ConsumerProtocolSubscription; every version begins like v0. None if it does not parse."""
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


def record_of(group: ClassicGroup, assignments: Mapping[str, bytes], now_ms: int) -> GroupRecord:
    """The record of the generation that the group has formed: with these assignments it is stable from now on."""
    return GroupRecord(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=now_ms,
        members=tuple(
            ClassicMemberRecord(
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


def empty_record(group: ClassicGroup, now_ms: int) -> GroupRecord:
    """The record of a group that has no members from now on."""
    return GroupRecord(group.protocol_type or "", group.generation + 1, None, None, now_ms, ())


def _member_of(m: ClassicMemberRecord, protocol: str, known: Member | None) -> Member:
    """The member that a record describes. No session runs yet if it is new: see `rebalance.resume`."""
    offer = (protocol, m.subscription)
    member = Member(
        member_id=m.member_id,
        group_instance_id=m.group_instance_id,
        client_id=m.client_id,
        client_host=m.client_host,
        rebalance_timeout_ms=m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout,
        session_timeout_ms=m.session_timeout,
        # Kafka: only the metadata of the chosen protocol is recorded, so that is all a loaded member offers.
        protocols=(offer,),
        assignment=m.assignment,
    )
    if known is not None:
        member.is_new, member.held_join, member.held_sync = known.is_new, known.held_join, known.held_sync
        if offer in known.protocols:
            member.protocols = known.protocols
    return member
