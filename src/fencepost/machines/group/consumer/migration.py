"""Groups that change their protocol while they run: classic to consumer, and back.

The first member that uses the consumer protocol turns a classic group into a consumer group. The others stay in it
with JoinGroup, SyncGroup and Heartbeat: for them every step towards the target looks like a rebalance. When the last
member of the consumer protocol leaves, the group becomes classic again. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fencepost.machines.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Member,
    metadata_of,
    select_protocol,
)
from fencepost.machines.group.classic.requests import (
    ClassicMemberRecord,
    GroupRecord,
    Join,
    JoinResult,
    Leaver,
    Protocols,
    Sync,
)
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.group import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    CurrentRecord,
    Draft,
    EpochRecord,
    MemberRecord,
    Place,
    Places,
    TargetEpochRecord,
    TargetRecord,
    TopicLookup,
    metadata_hash,
)
from fencepost.machines.group.consumer.heartbeat import (
    GroupRefused,
    check_instance,
    check_room,
    move_on,
    replace_static,
    unknown_member,
)
from fencepost.protocol import errors
from fencepost.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from fencepost.protocol.schema import Malformed

LAST_EMBEDDED_VERSION = 3
FIRST_VERSION_WITH_MEMBER_ID = 4


# From classic to consumer.


def check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    reason = None
    if config.consumer_migration_policy not in ("bidirectional", "upgrade"):
        reason = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise GroupRefused(
            errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
        )


def upgraded(group: ClassicGroup, topics: TopicLookup) -> Draft:
    """The consumer group that a classic group becomes: every member keeps its partitions and its generation."""
    draft = Draft(ConsumerGroup(group.group_id))
    try:
        members = [_from_classic(group, member, topics) for member in group.members.values()]
    except Malformed:
        raise GroupRefused(
            errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol "
            "is malformed.",
        ) from None
    group_id, epoch = group.group_id, group.generation
    for member in members:
        draft.write(MemberRecord(group_id, member.member_id, member))
    draft.write(EpochRecord(group_id, (epoch, metadata_hash(draft.group.subscribed_topics(), topics))))
    for member in members:
        draft.write(TargetRecord(group_id, member.member_id, frozenset(member.assigned)))
    draft.write(TargetEpochRecord(group_id, (epoch, 0)))
    for member in members:
        draft.write(CurrentRecord(group_id, member.member_id, member))
    return draft


def _from_classic(group: ClassicGroup, member: Member, topics: TopicLookup) -> ConsumerMember:
    protocol = group.protocol
    if protocol not in {name for name, _ in member.protocols}:
        # The member waits to join, and with it the group will choose another protocol.
        protocol = select_protocol([m.protocols for m in group.members.values()])
    subscription = decode_subscription(member.metadata(protocol))
    held: set[Place] = set()
    if member.assignment:
        version = int.from_bytes(member.assignment[:2], "big", signed=True)
        assignment, _ = ConsumerProtocolAssignment.decode(member.assignment, 2, min(version, LAST_EMBEDDED_VERSION))
        if assignment.user_data:
            raise GroupRefused(
                errors.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom "
                "assignor is in use. Please refer to the documentation or switch to a default assignor before "
                "re-attempting the upgrade.",
            )
        for part in assignment.assigned_partitions:
            held.update(_places(part.topic, part.partitions, topics))
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        state=STABLE,
        assigned=dict.fromkeys(sorted(held), group.generation),
    )


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises Malformed."""
    if len(metadata) < 2:
        raise Malformed(f"a subscription of {len(metadata)} bytes has no version")
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < 0:
        raise Malformed(f"a subscription of version {version}")
    return ConsumerProtocolSubscription.decode(metadata, 2, min(version, LAST_EMBEDDED_VERSION))[0]


def _places(name: str, indexes: Collection[int], topics: TopicLookup) -> set[Place]:
    info = topics.by_name(name)
    return set() if info is None else {(info.topic_id, index) for index in indexes}


# Members of the classic protocol in a consumer group.


def join(
    draft: Draft, cmd: Join, new_member_id: str, topics: TopicLookup, config: GroupConfig, now_ms: int
) -> JoinResult:
    """JoinGroup has the effect of a heartbeat in the consumer protocol: a member joins, changes, or takes a step."""
    if config.consumer_migration_policy == "disabled":
        raise GroupRefused(errors.INCONSISTENT_GROUP_PROTOCOL, "the migration of groups is disabled")
    is_unknown = not cmd.member_id
    member_id = cmd.member_id or new_member_id
    check_room(draft.group, member_id, cmd.group_instance_id, config)
    _check_protocols(draft.group, cmd)
    if is_unknown and cmd.group_instance_id is None and cmd.version >= FIRST_VERSION_WITH_MEMBER_ID:
        return JoinResult(errors.MEMBER_ID_REQUIRED, member_id)
    before = _find_or_admit(draft, cmd, member_id, is_unknown)
    try:
        subscription = decode_subscription(cmd.protocols[0][1])
    except Malformed:
        raise GroupRefused(errors.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read") from None
    changed = replace(
        before,
        instance_id=before.instance_id if cmd.group_instance_id is None else cmd.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=cmd.time_to_rejoin_ms(),
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=cmd.client_id,
        client_host=cmd.client_host,
        classic=ClassicMember(cmd.session_timeout_ms, cmd.protocols),
    )
    owned: set[Place] = set()
    for part in subscription.owned_partitions:
        owned |= _places(part.topic, part.partitions, topics)
    member = move_on(draft, before, changed, frozenset(owned), topics, cmd.may_describe, config, now_ms)
    return JoinResult(
        errors.NONE,
        member_id,
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=cmd.protocols[0][0],
    )


def _check_protocols(group: ConsumerGroup, cmd: Join) -> None:
    offered = {name for name, _ in cmd.protocols}
    for member in group.classic_members():
        assert member.classic is not None
        offered &= {name for name, _ in member.classic.protocols}
    if cmd.protocol_type != CONSUMER_PROTOCOL_TYPE or not offered:
        raise GroupRefused(errors.INCONSISTENT_GROUP_PROTOCOL, f"Member {cmd.member_id}'s protocols are not supported.")


def _find_or_admit(draft: Draft, cmd: Join, member_id: str, is_unknown: bool) -> ConsumerMember:
    group = draft.group
    if cmd.group_instance_id is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    static = group.static_member(cmd.group_instance_id)
    if is_unknown:
        return ConsumerMember(member_id) if static is None else replace_static(draft, static, member_id)
    if static is None:
        raise GroupRefused(errors.UNKNOWN_MEMBER_ID, f"Instance id {cmd.group_instance_id} is unknown.")
    check_instance(static, member_id)
    return static


def find_classic(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """The member that sent a SyncGroup or Heartbeat."""
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = group.static_member(instance_id)
        if member is not None:
            check_instance(member, member_id)
    if member is None or member.classic is None:
        raise unknown_member(group, member_id)
    if member.epoch != generation:
        raise GroupRefused(
            errors.ILLEGAL_GENERATION, f"generation {generation} was sent, the member is in {member.epoch}"
        )
    return member


def sync(group: ConsumerGroup, cmd: Sync, topics: TopicLookup) -> tuple[ConsumerMember, bytes]:
    """The member, and its assignment in the format of the classic protocol."""
    member = find_classic(group, cmd.member_id, cmd.group_instance_id, cmd.generation_id)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if cmd.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or cmd.protocol_name not in (None, name):
        raise GroupRefused(errors.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not the one of the join")
    if group.target_epoch > member.epoch and member.state is not UNREVOKED_PARTITIONS:
        raise GroupRefused(errors.REBALANCE_IN_PROGRESS, "there is a newer target")
    return member, encode_assignment(frozenset(member.assigned), metadata, topics)


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a member of the classic protocol has a next step to take, which it does by joining again."""
    return (
        member.epoch < group.target_epoch
        or member.state is UNREVOKED_PARTITIONS
        or (member.state is UNRELEASED_PARTITIONS and not group.is_waiting_for_others(member))
    )


def who_leaves(group: ConsumerGroup, leaver: Leaver) -> tuple[str, int]:
    if leaver.group_instance_id is None:
        known = leaver.member_id in group.members
        return leaver.member_id, errors.NONE if known else errors.UNKNOWN_MEMBER_ID
    static = group.static_member(leaver.group_instance_id)
    if static is None:
        return leaver.member_id, errors.UNKNOWN_MEMBER_ID
    if leaver.member_id and leaver.member_id != static.member_id:
        return leaver.member_id, errors.FENCED_INSTANCE_ID
    return static.member_id, errors.NONE


def encode_assignment(places: Places, metadata: bytes, topics: TopicLookup) -> bytes:
    """As ConsumerProtocolAssignment, in the version of the member's subscription."""
    version = min(int.from_bytes(metadata[:2], "big", signed=True), LAST_EMBEDDED_VERSION)
    by_topic: dict[str, list[int]] = {}
    for topic_id, index in sorted(places):
        info = topics.by_id(topic_id)
        if info is not None:
            by_topic.setdefault(info.name, []).append(index)
    parts = [ConsumerProtocolAssignment.TopicPartition(name, indexes) for name, indexes in by_topic.items()]
    return version.to_bytes(2, "big") + ConsumerProtocolAssignment(parts).encode(version)


# From consumer to classic.


def may_downgrade(group: ConsumerGroup, without: Collection[str], config: GroupConfig) -> bool:
    """Whether only members of the classic protocol are left when these members are gone."""
    left = [member for member in group.members.values() if member.member_id not in without]
    return (
        bool(left)
        and all(member.classic is not None for member in left)
        and config.consumer_migration_policy in ("bidirectional", "downgrade")
        and len(left) <= config.group_max_size
    )


def downgraded(group: ConsumerGroup, without: Collection[str], topics: TopicLookup, now_ms: int) -> GroupRecord:
    """The record of the classic group that a consumer group becomes: each member is assigned its target.

    The record names no leader. So a restart before the members have joined again finds that they still have to.
    """
    left = [member for member in group.members.values() if member.member_id not in without]
    protocol = select_protocol([protocols_of(member) for member in left])
    members = []
    for member in left:
        assert member.classic is not None
        subscription = metadata_of(member.classic.protocols, protocol)
        members.append(
            ClassicMemberRecord(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                subscription,
                encode_assignment(group.targets.get(member.member_id, frozenset()), subscription, topics),
            )
        )
    return GroupRecord(CONSUMER_PROTOCOL_TYPE, group.epoch, protocol, None, now_ms, tuple(members))


def protocols_of(member: ConsumerMember) -> Protocols:
    """The protocols that a member of the classic protocol offers."""
    assert member.classic is not None
    return member.classic.protocols
