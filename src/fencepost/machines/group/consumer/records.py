"""The records of consumer groups in `__consumer_offsets`, as Kafka lays them out, and back.

A key begins with its type: 3 for the group's epoch, 5 for a member, 6 for the target's epoch, 7 for a member's target,
8 for a member's current assignment, 16 for a pattern. (4 had the topics of which 3 has a hash now, and is skipped.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fencepost.machines.group.consumer.group import (
    ClassicMember,
    ConsumerMember,
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    Held,
    MemberRecord,
    MemberState,
    Places,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
)
from fencepost.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from fencepost.protocol.schema import Message

EPOCH, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 5, 6, 7, 8, 16
VALUE_VERSION = 0


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Key and value; no value is a tombstone."""
    key: Message
    if isinstance(record, EpochRecord):
        kind, key = EPOCH, ConsumerGroupMetadataKey(record.group_id)
    elif isinstance(record, TargetEpochRecord):
        kind, key = TARGET_EPOCH, ConsumerGroupTargetAssignmentMetadataKey(record.group_id)
    elif isinstance(record, MemberRecord):
        kind, key = MEMBER, ConsumerGroupMemberMetadataKey(record.group_id, record.member_id)
    elif isinstance(record, TargetRecord):
        kind, key = TARGET, ConsumerGroupTargetAssignmentMemberKey(record.group_id, record.member_id)
    elif isinstance(record, CurrentRecord):
        kind, key = CURRENT, ConsumerGroupCurrentMemberAssignmentKey(record.group_id, record.member_id)
    else:
        kind, key = REGEX, ConsumerGroupRegularExpressionKey(record.group_id, record.regex)
    stored_key = kind.to_bytes(2, "big") + key.encode(0)
    if record.value is None:
        return stored_key, None
    return stored_key, bytes(2) + _LAYOUTS[kind](record.value).encode(VALUE_VERSION)


def decode(kind: int, key: bytes, value: bytes | None) -> ConsumerRecord | None:
    """The record with a key of this kind; None if it is to be skipped."""
    if kind not in _KEYS or (value is not None and value[:2] != bytes(2)):
        return None
    names = _KEYS[kind].decode(key, 2, 0)[0]
    stored = None if value is None else _VALUES[kind].decode(value, 2, VALUE_VERSION)[0]
    if kind == EPOCH:
        return EpochRecord(names.group_id, stored and (stored.epoch, stored.metadata_hash))
    if kind == TARGET_EPOCH:
        return TargetEpochRecord(names.group_id, stored and (stored.assignment_epoch, stored.assignment_timestamp))
    if kind == MEMBER:
        return MemberRecord(names.group_id, names.member_id, stored and _read_member(names.member_id, stored))
    if kind == TARGET:
        places = stored and frozenset((t.topic_id, index) for t in stored.topic_partitions for index in t.partitions)
        return TargetRecord(names.group_id, names.member_id, places)
    if kind == CURRENT:
        return CurrentRecord(names.group_id, names.member_id, stored and _read_current(names.member_id, stored))
    resolved = stored and ResolvedRegex(frozenset(stored.topics), stored.version, stored.timestamp)
    return RegexRecord(names.group_id, names.regular_expression, resolved)


def _lay_out_member(member: ConsumerMember) -> Message:
    kind = ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        protocols = [kind.ClassicProtocol(name, metadata) for name, metadata in member.classic.protocols]
        classic = kind.ClassicMemberMetadata(member.classic.session_timeout_ms, protocols)
    return kind(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        sorted(member.topic_names),
        member.topic_regex,
        member.rebalance_timeout_ms,
        member.server_assignor,
        classic,
    )


def _read_member(member_id: str, stored: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    said = stored.classic_member_metadata
    classic = None
    if said is not None:
        protocols = tuple((protocol.name, protocol.metadata) for protocol in said.supported_protocols)
        classic = ClassicMember(said.session_timeout_ms, protocols)
    return ConsumerMember(
        member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topic_names=frozenset(stored.subscribed_topic_names),
        topic_regex=stored.subscribed_topic_regex or "",
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        server_assignor=stored.server_assignor,
        classic=classic,
    )


def _lay_out_target(places: Places) -> Message:
    kind = ConsumerGroupTargetAssignmentMemberValue
    return kind([kind.TopicPartition(topic_id, indexes) for topic_id, indexes in by_topic(places).items()])


def _lay_out_current(member: ConsumerMember) -> Message:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        member.state,
        _lay_out_held(member.assigned),
        _lay_out_held(member.revoking),
    )


def _lay_out_held(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id, indexes, [held[topic_id, index] for index in indexes]
        )
        for topic_id, indexes in by_topic(held).items()
    ]


def _read_current(member_id: str, stored: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    def held(parts: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]) -> Held:
        found: dict[tuple[bytes, int], int] = {}
        for part in parts:
            # Kafka: before 4.3 records did not say at which epoch a partition was assigned.
            epochs = part.assignment_epochs or [stored.member_epoch] * len(part.partitions)
            found.update(((part.topic_id, index), epoch) for index, epoch in zip(part.partitions, epochs))
        return found

    return ConsumerMember(
        member_id,
        epoch=stored.member_epoch,
        previous_epoch=stored.previous_member_epoch,
        state=MemberState(stored.state) if stored.state in set(MemberState) else MemberState.STABLE,
        assigned=held(stored.assigned_partitions),
        revoking=held(stored.partitions_pending_revocation),
    )


def by_topic(places: Iterable[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    """Topic id -> partitions, in order."""
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        found.setdefault(topic_id, []).append(index)
    return found


_LAYOUTS: Mapping[int, Callable[[Any], Message]] = {
    EPOCH: lambda value: ConsumerGroupMetadataValue(*value),
    MEMBER: _lay_out_member,
    TARGET_EPOCH: lambda value: ConsumerGroupTargetAssignmentMetadataValue(*value),
    TARGET: _lay_out_target,
    CURRENT: _lay_out_current,
    REGEX: lambda value: ConsumerGroupRegularExpressionValue(sorted(value.topics), value.version, value.timestamp_ms),
}
_KEYS: Mapping[int, Any] = {
    EPOCH: ConsumerGroupMetadataKey,
    MEMBER: ConsumerGroupMemberMetadataKey,
    TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataKey,
    TARGET: ConsumerGroupTargetAssignmentMemberKey,
    CURRENT: ConsumerGroupCurrentMemberAssignmentKey,
    REGEX: ConsumerGroupRegularExpressionKey,
}
_VALUES: Mapping[int, Any] = {
    EPOCH: ConsumerGroupMetadataValue,
    MEMBER: ConsumerGroupMemberMetadataValue,
    TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    TARGET: ConsumerGroupTargetAssignmentMemberValue,
    CURRENT: ConsumerGroupCurrentMemberAssignmentValue,
    REGEX: ConsumerGroupRegularExpressionValue,
}
