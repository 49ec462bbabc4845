"""All groups and offsets of one partition of `__consumer_offsets`: the state that its records make.

`apply` is the only way in for a record, just appended or loaded from a log; `apply_marker` ends a transaction. Only
`add_unrecorded` changes the shard without a record, and a restart forgets that group.
A name belongs to a group of the classic or of the consumer protocol. It changes over by records too: those that end the
one group and those that make the other, in one batch.

The decisions about this state are in `members.py`, `commits.py` and `deletion.py`. At the end are the groups as
DescribeGroups and ListGroups show them.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.group.classic.group import CONSUMER_PROTOCOL_TYPE, STABLE, ClassicGroup
from fencepost.machines.group.classic.requests import GroupChange, GroupRecord
from fencepost.machines.group.consumer.group import ConsumerGroup, ConsumerRecord, EpochRecord
from fencepost.machines.group.decision import LogRecord
from fencepost.machines.group.offsets import OffsetRecord, Offsets

AnyGroup = ClassicGroup | ConsumerGroup
Durable = tuple[dict[str, GroupRecord], dict[str, ConsumerGroup], Offsets]


class GroupShard:
    def __init__(self) -> None:
        # By group id. A name that only keeps offsets is a classic group without members.
        self.classic: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.offsets = Offsets()

    # Questions.

    def find(self, group_id: str) -> AnyGroup | None:
        return self.classic.get(group_id) or self.consumer.get(group_id)

    def durable(self) -> Durable:
        """What the log says. Applying its records to a new shard gives an equal value."""
        recorded = {group_id: group.recorded for group_id, group in self.classic.items() if group.recorded is not None}
        return recorded, self.consumer, self.offsets

    # Changes.

    def apply(self, record: LogRecord, offset: int, producer_id: int | None) -> None:
        """Take in the record at `offset` of the log. An offset with a producer id is pending until the marker."""
        if isinstance(record, OffsetRecord):
            if record.value is not None and self.find(record.group_id) is None:
                self.classic[record.group_id] = ClassicGroup(record.group_id)
            self.offsets.apply_offset(record, producer_id, offset)
        elif isinstance(record, GroupChange):
            self._apply_classic(*record)
        else:
            self._apply_consumer(record)

    def add_unrecorded(self, group_id: str, now_ms: int) -> ClassicGroup:
        """A classic group that members are about to join. Nothing is recorded of it, so a restart forgets it."""
        group = self.classic[group_id] = ClassicGroup(group_id, state_timestamp_ms=now_ms)
        return group

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction ended: its offsets count from now on, or never will."""
        self.offsets.apply_marker(producer_id, commit)

    def _apply_classic(self, group_id: str, record: GroupRecord | None) -> None:
        if record is None:
            self._end(group_id)
            return
        group = self.classic.get(group_id)
        if group is None:
            group = self.classic[group_id] = ClassicGroup(group_id)
        group.apply(record)

    def _apply_consumer(self, record: ConsumerRecord) -> None:
        """A consumer group begins with its first record and ends with the tombstone of its epoch."""
        group_id = record.group_id
        group = self.consumer.get(group_id)
        if group is None:
            if record.value is None:
                return
            # A classic group that is in the log has a tombstone there before this record.
            self.classic.pop(group_id, None)
            group = self.consumer[group_id] = ConsumerGroup(group_id)
        if isinstance(record, EpochRecord) and record.value is None:
            self._end(group_id)
        else:
            group.apply(record)

    def _end(self, group_id: str) -> None:
        self.classic.pop(group_id, None)
        self.consumer.pop(group_id, None)
        if self.offsets.has_any(group_id):
            self.classic[group_id] = ClassicGroup(group_id)


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedMember, ...]
    group_type: str = "classic"


def describe_classic(shard: GroupShard, group_id: str) -> DescribedGroup | None:
    group = shard.classic.get(group_id)
    if group is None:
        return None
    protocol = group.protocol if group.state is STABLE else None
    members = tuple(
        DescribedMember(
            member_id=m.member_id,
            group_instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            metadata=b"" if protocol is None else m.metadata(protocol),
            assignment=m.assignment,
        )
        for m in group.members.values()
    )
    return DescribedGroup(group_id, group.state.value, group.protocol_type or "", protocol or "", members)


def list_groups(shard: GroupShard) -> list[DescribedGroup]:
    """Every group, for ListGroups to filter."""
    classic = (describe_classic(shard, group_id) for group_id in shard.classic)
    consumer = [
        DescribedGroup(group.group_id, group.state_name(), CONSUMER_PROTOCOL_TYPE, "", (), "consumer")
        for group in shard.consumer.values()
    ]
    return [*(group for group in classic if group is not None), *consumer]
