"""ConsumerGroupHeartbeat: how members of the consumer protocol come, go, change, and are led to their target.

Every function takes a `Draft` and writes records to it. The caller appends them, and then they are applied to the
group. A request that cannot be granted raises `GroupRefused`, and its draft is dropped.
Follows the consumer part of Kafka's GroupMetadataManager (KIP-848, KIP-1043, KIP-1101, KIP-1263).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fencepost.machines.group.classic.requests import EVERYTHING, MayDescribe
from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.assignors import ASSIGNORS
from fencepost.machines.group.consumer.group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    CurrentRecord,
    Draft,
    MemberRecord,
    Place,
    Places,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
    TopicLookup,
    Wanting,
    metadata_hash,
)
from fencepost.machines.group.consumer.reconcile import reconcile
from fencepost.machines.pattern import BadPattern, matching
from fencepost.protocol import errors

NO_TIMEOUT = -1


class GroupRefused(Exception):
    """A request that is not granted: Kafka's code, and a sentence for the client."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat, v0-1. A field that is None has not changed since the last request."""

    group_id: str
    version: int = 1
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: frozenset[Place] | None = None
    client_id: str = ""
    client_host: str = ""
    may_describe: MayDescribe = EVERYTHING

    def is_full(self) -> bool:
        """Whether all fields are set, as after an error. The client then expects a full answer, too."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    error_code: int
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Places | None = None  # None: as before.


def check(cmd: ConsumerHeartbeat, config: GroupConfig) -> None:
    """Check a request as far as that does not depend on the group."""
    if not cmd.member_id and (cmd.version >= 1 or cmd.member_epoch > 0 or cmd.member_epoch == LEAVE_EPOCH):
        raise GroupRefused(errors.INVALID_REQUEST, "MemberId can't be empty.")
    if not cmd.group_id:
        raise GroupRefused(errors.INVALID_REQUEST, "GroupId can't be empty.")
    for name, value in (("InstanceId", cmd.instance_id), ("RackId", cmd.rack_id)):
        if value is not None and not value.strip():
            raise GroupRefused(errors.INVALID_REQUEST, f"{name} can't be empty.")
    if cmd.member_epoch == 0:
        _check_first(cmd)
    elif cmd.member_epoch == LEAVE_STATIC_EPOCH and cmd.instance_id is None:
        raise GroupRefused(errors.INVALID_REQUEST, "InstanceId can't be null.")
    elif cmd.member_epoch < LEAVE_STATIC_EPOCH:
        raise GroupRefused(errors.INVALID_REQUEST, "MemberEpoch is invalid.")
    if cmd.server_assignor is not None and cmd.server_assignor not in config.consumer_assignors:
        raise GroupRefused(
            errors.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {cmd.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(config.consumer_assignors)}.",
        )


def _check_first(cmd: ConsumerHeartbeat) -> None:
    if cmd.rebalance_timeout_ms == NO_TIMEOUT:
        raise GroupRefused(errors.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if cmd.owned is None or cmd.owned:
        raise GroupRefused(errors.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if cmd.topic_names is None and cmd.topic_regex is None:
        raise GroupRefused(
            errors.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def heartbeat(
    draft: Draft, cmd: ConsumerHeartbeat, topics: TopicLookup, config: GroupConfig, now_ms: int
) -> HeartbeatResult:
    """A member joins, changes, or shows that it is alive; it takes its next step towards the target."""
    check_room(draft.group, cmd.member_id, cmd.instance_id, config)
    before = _find_or_admit(draft, cmd)
    held_before = before.assigned
    changed = replace(
        before,
        instance_id=before.instance_id if cmd.instance_id is None else cmd.instance_id,
        rack_id=before.rack_id if cmd.rack_id is None else cmd.rack_id,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if cmd.rebalance_timeout_ms == NO_TIMEOUT else cmd.rebalance_timeout_ms
        ),
        server_assignor=before.server_assignor if cmd.server_assignor is None else cmd.server_assignor,
        topic_names=before.topic_names if cmd.topic_names is None else frozenset(cmd.topic_names),
        topic_regex=before.topic_regex if cmd.topic_regex is None else cmd.topic_regex,
        client_id=cmd.client_id,
        client_host=cmd.client_host,
        classic=None,
    )
    member = move_on(draft, before, changed, cmd.owned, topics, cmd.may_describe, config, now_ms)
    says_all = cmd.member_epoch == 0 or cmd.is_full() or member.assigned != held_before
    return HeartbeatResult(
        errors.NONE,
        None,
        member.member_id,
        member.epoch,
        config.consumer_heartbeat_interval_ms,
        frozenset(member.assigned) if says_all else None,
    )


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, config: GroupConfig) -> None:
    if instance_id in group.static_members or member_id in group.members:
        return
    if len(group.members) >= config.consumer_max_size:
        raise GroupRefused(
            errors.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.consumer_max_size} members.",
        )


def _find_or_admit(draft: Draft, cmd: ConsumerHeartbeat) -> ConsumerMember:
    group = draft.group
    is_joining = cmd.member_epoch == 0
    if cmd.instance_id is not None:
        static = group.static_member(cmd.instance_id)
        if is_joining:
            if static is None:
                return group.members.get(cmd.member_id, ConsumerMember(cmd.member_id))
            if static.member_id == cmd.member_id and static.epoch != LEAVE_STATIC_EPOCH:
                # Differs: Kafka refuses a static member that joins again because the first answer was lost, until its
                # session ends. Fencepost accepts it.
                return static
            if static.classic is None and static.epoch != LEAVE_STATIC_EPOCH:
                raise GroupRefused(
                    errors.UNRELEASED_INSTANCE_ID,
                    f"Static member {cmd.member_id} with instance id {cmd.instance_id} cannot join the group because "
                    f"the instance id is owned by {static.member_id} member.",
                )
            return replace_static(draft, static, cmd.member_id)
        if static is None:
            raise GroupRefused(errors.UNKNOWN_MEMBER_ID, f"Instance id {cmd.instance_id} is unknown.")
        check_instance(static, cmd.member_id)
        _check_epoch(static, cmd)
        return static
    member = group.members.get(cmd.member_id)
    if member is None:
        if not is_joining:
            raise unknown_member(group, cmd.member_id)
        return ConsumerMember(cmd.member_id)
    _check_epoch(member, cmd)
    return member


def unknown_member(group: ConsumerGroup, member_id: str) -> GroupRefused:
    return GroupRefused(errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def check_instance(static: ConsumerMember, member_id: str) -> None:
    if static.member_id != member_id:
        raise GroupRefused(
            errors.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {static.instance_id} was fenced by member {static.member_id}.",
        )


def _check_epoch(member: ConsumerMember, cmd: ConsumerHeartbeat) -> None:
    if cmd.member_epoch in (0, member.epoch):
        return
    # The response with the new epoch may have been lost. The member then owns no more than the group knows of.
    is_retry = (
        cmd.member_epoch < member.epoch
        and cmd.member_epoch == member.previous_epoch
        and cmd.owned is not None
        and cmd.owned <= member.assigned.keys()
    )
    if not is_retry:
        how = "greater" if cmd.member_epoch > member.epoch else "smaller"
        raise GroupRefused(
            errors.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {how} member epoch ({cmd.member_epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def replace_static(draft: Draft, old: ConsumerMember, new_member_id: str) -> ConsumerMember:
    """A static member is back under a new id: it takes over the place and the partitions of its predecessor."""
    group_id, target = draft.group.group_id, draft.group.targets.get(old.member_id, frozenset())
    new = replace(old, member_id=new_member_id, epoch=0, previous_epoch=0)
    draft.remove_member(old.member_id)
    draft.write(MemberRecord(group_id, new_member_id, new))
    draft.write(TargetRecord(group_id, new_member_id, target))
    draft.write(CurrentRecord(group_id, new_member_id, new))
    return new


def move_on(
    draft: Draft,
    before: ConsumerMember,
    changed: ConsumerMember,
    owned: frozenset[Place] | None,
    topics: TopicLookup,
    may_describe: MayDescribe,
    config: GroupConfig,
    now_ms: int,
) -> ConsumerMember:
    """Record a member's changes, compute a new target if that is needed, and take the member's next step."""
    group_id = draft.group.group_id
    is_new = before.member_id not in draft.group.members
    has_subscription_changed = (before.topic_names, before.topic_regex) != (changed.topic_names, changed.topic_regex)
    if is_new or changed != before:
        draft.write(MemberRecord(group_id, changed.member_id, changed))
    is_bump_due = _resolve_regexes(draft, changed.topic_regex, topics, may_describe, now_ms) or has_subscription_changed
    if not is_bump_due and draft.group.seen_topics_version != topics.version:
        is_bump_due = metadata_hash(draft.group.subscribed_topics(), topics) != draft.group.metadata_hash
    if is_bump_due:
        draft.bump_epoch(topics)
    _maybe_retarget(draft, topics, config, now_ms)
    group = draft.group
    member = group.members[changed.member_id]
    target = group.targets.get(member.member_id, frozenset())
    after = reconcile(group, member, target, topics, owned, has_subscription_changed)
    if after != member:
        draft.write(CurrentRecord(group_id, member.member_id, after))
    return after


def _resolve_regexes(draft: Draft, own_regex: str, topics: TopicLookup, may_describe: MayDescribe, now_ms: int) -> bool:
    """Match the patterns with the topics, where the result is not known. True if the result of one has changed.

    If a pattern fails, only a member that subscribes to it gets the error. For others it matches the topics of before.
    """
    group = draft.group
    wanted = group.wanted_regexes()
    for regex in sorted(group.regexes.keys() - wanted):
        draft.write(RegexRecord(group.group_id, regex, None))
    # Differs: Kafka matches patterns in the background, and looks for new topics every ten seconds at most. Fencepost
    # matches them in the heartbeat.
    is_stale = group.seen_topics_version != topics.version
    has_changed = False
    for regex in sorted(wanted):
        known = group.regexes.get(regex)
        is_overdue = regex in group.failed_regexes and regex == own_regex
        if known is not None and not is_stale and not is_overdue:
            continue
        try:
            # Kafka: a pattern matches what the member may see whose heartbeat comes first after a change.
            matched = frozenset(name for name in _matching(regex, topics.names()) if may_describe(name))
        except GroupRefused:
            if regex == own_regex:
                raise
            group.failed_regexes.add(regex)
            continue
        group.failed_regexes.discard(regex)
        if known is None or known.topics != matched:
            draft.write(RegexRecord(group.group_id, regex, ResolvedRegex(matched, topics.version, now_ms)))
            has_changed = True
    return has_changed


def _matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    try:
        return matching(regex, list(names))
    except BadPattern as e:
        reason = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {e}."
        raise GroupRefused(errors.INVALID_REGULAR_EXPRESSION, reason) from None


def _maybe_retarget(draft: Draft, topics: TopicLookup, config: GroupConfig, now_ms: int) -> None:
    group = draft.group
    if group.target_epoch >= group.epoch:
        return
    since_ms, interval_ms = group.target_timestamp_ms, config.consumer_assignment_interval_ms
    if since_ms and interval_ms and since_ms <= now_ms < since_ms + interval_ms:
        # The first heartbeat after the interval does it, for all changes up to then. If the clock was set back, it is
        # done at once.
        return
    counts: dict[bytes, int] = {}
    ids: dict[str, bytes] = {}
    for name in group.subscribed_topics():
        info = topics.by_name(name)
        if info is not None:
            ids[name] = info.topic_id
            counts[info.topic_id] = info.partition_count
    members = {
        member.member_id: Wanting(
            member.instance_id,
            frozenset(ids[name] for name in group.topics_of(member) if name in ids),
            group.targets.get(member.member_id, frozenset()),
        )
        for member in group.members.values()
    }
    for member_id, places in ASSIGNORS[preferred_assignor(group, config)](members, counts).items():
        if places != group.targets.get(member_id):
            draft.write(TargetRecord(group.group_id, member_id, places))
    draft.write(TargetEpochRecord(group.group_id, (draft.group.epoch, now_ms)))


def preferred_assignor(group: ConsumerGroup, config: GroupConfig) -> str:
    """The assignor that most members ask for; the first of the setting if none asks."""
    votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor)
    return max(config.consumer_assignors, key=lambda name: votes[name])


# Leaving.


def leave(draft: Draft, cmd: ConsumerHeartbeat, topics: TopicLookup) -> HeartbeatResult:
    """A member leaves: for good (-1), or as a static member that will be back (-2)."""
    group = draft.group
    if cmd.instance_id is None:
        member = group.members.get(cmd.member_id)
        if member is None:
            raise unknown_member(group, cmd.member_id)
    else:
        static = group.static_member(cmd.instance_id)
        if static is None:
            raise GroupRefused(errors.UNKNOWN_MEMBER_ID, f"Instance id {cmd.instance_id} is unknown.")
        check_instance(static, cmd.member_id)
        member = static
    if cmd.instance_id is not None and cmd.member_epoch == LEAVE_STATIC_EPOCH:
        # Its place is kept until its session ends. From now on its commits are stale, whatever their epoch.
        gone = replace(member, epoch=LEAVE_STATIC_EPOCH, revoking={}, assigned=dict.fromkeys(member.assigned, 0))
        draft.write(CurrentRecord(group.group_id, member.member_id, gone))
    else:
        fence(draft, [member.member_id], topics)
    return HeartbeatResult(errors.NONE, None, cmd.member_id, cmd.member_epoch)


def fence(draft: Draft, member_ids: Iterable[str], topics: TopicLookup) -> None:
    """Remove members; the partitions that they held are free at once."""
    for member_id in member_ids:
        draft.remove_member(member_id)
    for regex in sorted(draft.group.regexes.keys() - draft.group.wanted_regexes()):
        draft.write(RegexRecord(draft.group.group_id, regex, None))
    draft.bump_epoch(topics)
