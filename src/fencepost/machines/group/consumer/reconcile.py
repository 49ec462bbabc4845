"""The next step of one member towards its target: first give up partitions, then take those that are free.

No partition is ever held by two members: a member gets a partition only when no other holds it, and holds it until it
reports that it has given it up, or is fenced. Follows Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from fencepost.machines.group.consumer.group import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    Held,
    Place,
    Places,
    TopicLookup,
)


def reconcile(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Places,
    topics: TopicLookup,
    owned: Set[Place] | None,
    has_subscription_changed: bool,
) -> ConsumerMember:
    """The member after this heartbeat. `owned` are the partitions that it reports to have; None: it did not say."""
    if not has_subscription_changed and member.is_reconciled_to(group.target_epoch):
        return member
    if member.state is STABLE and member.epoch == group.target_epoch:
        return _drop_unsubscribed(group, member, topics, owned)
    if member.state is UNREVOKED_PARTITIONS and _still_has(member.revoking, owned):
        return _drop_unsubscribed(group, member, topics, owned) if has_subscription_changed else member
    return _step(group, member, target, topics, owned)


def _step(
    group: ConsumerGroup, member: ConsumerMember, target: Places, topics: TopicLookup, owned: Set[Place] | None
) -> ConsumerMember:
    subscribed = _subscribed_ids(group, member, topics)
    wanted = {place for place in target if place[0] in subscribed}
    kept = {place: epoch for place, epoch in member.assigned.items() if place in wanted}
    to_revoke = {place: epoch for place, epoch in member.assigned.items() if place not in wanted}
    # Partitions that the member itself has just given up are free for it again.
    missing = wanted - kept.keys()
    free = {place for place in missing if place not in group.owners or place in member.revoking}
    if to_revoke and _still_has(to_revoke, owned):
        # The member stays in its epoch until it has given up these partitions.
        return member.moved_to(member.epoch, UNREVOKED_PARTITIONS, kept, to_revoke)
    state = STABLE if len(free) == len(missing) else UNRELEASED_PARTITIONS
    return member.moved_to(group.target_epoch, state, kept | dict.fromkeys(sorted(free), group.target_epoch))


def _drop_unsubscribed(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicLookup, owned: Set[Place] | None
) -> ConsumerMember:
    """There is no target for the new subscription yet, but partitions outside of it go at once."""
    subscribed = _subscribed_ids(group, member, topics)
    kept = {place: epoch for place, epoch in member.assigned.items() if place[0] in subscribed}
    if len(kept) == len(member.assigned):
        return member
    dropped = {place: epoch for place, epoch in member.assigned.items() if place not in kept}
    to_revoke = {**member.revoking, **dropped}
    if _still_has(to_revoke, owned):
        return member.moved_to(member.epoch, UNREVOKED_PARTITIONS, kept, to_revoke)
    return replace(member, previous_epoch=member.epoch, assigned=kept)


def _still_has(places: Held, owned: Set[Place] | None) -> bool:
    return owned is None or any(place in places for place in owned)


def _subscribed_ids(group: ConsumerGroup, member: ConsumerMember, topics: TopicLookup) -> set[bytes]:
    found = (topics.by_name(name) for name in group.topics_of(member))
    return {info.topic_id for info in found if info is not None}
