"""One group of the consumer protocol (KIP-848): its members, its epochs, and the records that it is made of.

The coordinator decides which member reads which partitions: the *target* assignment. Each member is led towards its
target in steps; the first is always to give up partitions that others are to have. Three epochs show the progress:

    group epoch     rises with every change of members, subscriptions or topics
    target epoch    the group epoch that the target was computed for
    member epoch    the target epoch that the member has reached

A group is what its records say, and `apply` is the only way to change it: for records that were just appended, and
for those of a log that is loaded. The fields that are lost with the process (deadlines and the like) are kept apart.
Follows Kafka's ConsumerGroup and ConsumerGroupMember.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, Protocol

from fencepost.machines.group.classic.requests import Protocols

# A partition by the id of its topic, not by its name: a new topic may have the name of a deleted one.
Place = tuple[bytes, int]
# Partitions, each with the epoch at which the member got it.
Held = Mapping[Place, int]
Places = frozenset[Place]
NOTHING: Held = {}

FIRST_EPOCH = 1
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # A static member that will be back.

# What a group waits for a member to do.
SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int


class TopicLookup(Protocol):
    """The topics of the cluster, as consumer groups see them."""

    @property
    def version(self) -> int:
        """Grows with every change of the topics."""
        ...

    def by_name(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]: ...


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # It must give up partitions before it gets others.
    UNRELEASED_PARTITIONS = 2  # Others still hold partitions of its target.


STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS = MemberState


class ClassicMember(NamedTuple):
    """The subscription that a member of the classic protocol sent to a consumer group during a migration."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""  # A pattern, or none.
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    # Its current assignment.
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is STABLE and self.epoch == target_epoch

    def epoch_of(self, place: Place) -> int | None:
        """The epoch at which the member got a partition; None if it does not hold it."""
        found = self.assigned.get(place)
        return self.revoking.get(place) if found is None else found

    def moved_to(self, epoch: int, state: MemberState, assigned: Held, revoking: Held = NOTHING) -> ConsumerMember:
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    timestamp_ms: int


# Records. Without a value each is a tombstone.


class EpochRecord(NamedTuple):
    group_id: str
    value: tuple[int, int] | None  # Epoch, and a hash of the topics that are subscribed to.


class MemberRecord(NamedTuple):
    """The subscription that a member sent. Of `value`, the record stores only the fields that the member sent."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


class TargetEpochRecord(NamedTuple):
    group_id: str
    value: tuple[int, int] | None  # Epoch, and when it was computed.


class TargetRecord(NamedTuple):
    group_id: str
    member_id: str
    value: Places | None


class CurrentRecord(NamedTuple):
    """A member's current assignment. The record has only those fields of `value`."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


class RegexRecord(NamedTuple):
    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerRecord = EpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord


class Wait(NamedTuple):
    """A member must act before `due_ms`. With an `epoch`: it must have left that epoch by then."""

    due_ms: int
    epoch: int | None = None


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    targets: dict[str, Places] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    # Derived from the members: which one holds a partition (assigned, or not yet given up) or an instance id.
    owners: dict[Place, str] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    # Lost with the process. The key is (kind, member id), where the kind is SESSION, REBALANCE, JOIN or SYNC.
    waits: dict[tuple[str, str], Wait] = field(default_factory=dict, compare=False)
    seen_topics_version: int = field(default=-1, compare=False)
    # Regular expressions that failed, and whose members have not received the error yet.
    failed_regexes: set[str] = field(default_factory=set, compare=False)

    # Questions.

    def is_empty(self) -> bool:
        return not self.members

    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_stable = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member subscribes to, by name and by pattern."""
        resolved = self.regexes.get(member.topic_regex)
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def subscribed_topics(self) -> set[str]:
        return set().union(*(self.topics_of(member) for member in self.members.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def wanted_regexes(self) -> set[str]:
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether others still hold partitions of the member's target."""
        target = self.targets.get(member.member_id, frozenset())
        return any(place in self.owners for place in target if place not in member.assigned)

    def classic_members(self) -> list[ConsumerMember]:
        return [member for member in self.members.values() if member.classic is not None]

    def next_deadline_ms(self) -> int | None:
        return min((wait.due_ms for wait in self.waits.values()), default=None)

    def copy(self) -> ConsumerGroup:
        """A copy for decisions: records that are not written yet can be applied to it."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            owners=dict(self.owners),
            static_members=dict(self.static_members),
            waits={},
            failed_regexes=self.failed_regexes,
        )

    # Changes.

    def apply(self, record: ConsumerRecord) -> None:
        """Take one record in."""
        if isinstance(record, CurrentRecord):
            self._apply_current(record)
        elif isinstance(record, MemberRecord):
            self._apply_member(record)
        elif isinstance(record, TargetRecord):
            if record.value is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.value
        elif isinstance(record, TargetEpochRecord):
            self.target_epoch, self.target_timestamp_ms = record.value or (0, 0)
        elif isinstance(record, EpochRecord):
            self.epoch, self.metadata_hash = record.value or (FIRST_EPOCH, 0)
        elif record.value is None:
            self.regexes.pop(record.regex, None)
            self.failed_regexes.discard(record.regex)
        else:
            self.regexes[record.regex] = record.value

    def _apply_member(self, record: MemberRecord) -> None:
        before = self.members.get(record.member_id)
        said = record.value
        if said is None:
            if before is not None:
                del self.members[record.member_id]
                for what in (SESSION, REBALANCE, JOIN, SYNC):
                    self.waits.pop((what, record.member_id), None)
                self._release(before)
                self._release_instance(before)
            return
        if before is not None and before.instance_id != said.instance_id:
            self._release_instance(before)
        known = before or ConsumerMember(record.member_id)
        self.members[record.member_id] = replace(
            said,
            epoch=known.epoch,
            previous_epoch=known.previous_epoch,
            state=known.state,
            assigned=known.assigned,
            revoking=known.revoking,
        )
        if said.instance_id is not None:
            self.static_members[said.instance_id] = record.member_id

    def _apply_current(self, record: CurrentRecord) -> None:
        before = self.members.get(record.member_id)
        came = record.value
        if before is None and came is None:
            return
        known = before or ConsumerMember(record.member_id)
        self._release(known)
        if came is None:
            came = ConsumerMember(record.member_id, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
        self.members[record.member_id] = replace(
            known,
            epoch=came.epoch,
            previous_epoch=came.previous_epoch,
            state=came.state,
            assigned=came.assigned,
            revoking=came.revoking,
        )
        for place in (*came.assigned, *came.revoking):
            self.owners[place] = record.member_id

    def _release(self, member: ConsumerMember) -> None:
        for place in (*member.assigned, *member.revoking):
            if self.owners.get(place) == member.member_id:
                del self.owners[place]

    def _release_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]


class Draft:
    """A group as it will be with the records that were decided so far. The group itself is not touched."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[ConsumerRecord] = []

    def write(self, record: ConsumerRecord) -> None:
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        self.group.apply(record)

    def remove_member(self, member_id: str) -> None:
        # Kafka: in this order, so that a member is gone last.
        self.write(CurrentRecord(self.group.group_id, member_id, None))
        self.write(TargetRecord(self.group.group_id, member_id, None))
        self.write(MemberRecord(self.group.group_id, member_id, None))

    def bump_epoch(self, topics: TopicLookup) -> None:
        value = self.group.epoch + 1, metadata_hash(self.group.subscribed_topics(), topics)
        self.write(EpochRecord(self.group.group_id, value))


def tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """The records that end a group."""
    group_id = group.group_id
    records: list[ConsumerRecord] = [CurrentRecord(group_id, member_id, None) for member_id in group.members]
    records += [TargetRecord(group_id, member_id, None) for member_id in group.members]
    records.append(TargetEpochRecord(group_id, None))
    records += [MemberRecord(group_id, member_id, None) for member_id in group.members]
    records += [RegexRecord(group_id, regex, None) for regex in group.regexes]
    return [*records, EpochRecord(group_id, None)]


def metadata_hash(names: Iterable[str], topics: TopicLookup) -> int:
    """A number that changes when a topic is created, deleted or extended; 0 for no topics.

    Kafka's hash is another one. A group that moves between the two has one rebalance more, and no other difference.
    """
    found = sorted(info for name in names if (info := topics.by_name(name)) is not None)
    if not found:
        return 0
    text = "\n".join(f"{name}\0{topic_id.hex()}\0{count}" for name, topic_id, count in found)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


Assignor = Callable[[Mapping[str, "Wanting"], Mapping[bytes, int]], dict[str, Places]]


class Wanting(NamedTuple):
    """A member as an assignor sees it: the ids of its topics, and its previous target."""

    instance_id: str | None
    topic_ids: frozenset[bytes]
    had: Places = frozenset()
