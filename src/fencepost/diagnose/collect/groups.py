"""Asks about consumer groups: all of them, or one of them with its members."""

from __future__ import annotations

from fencepost.client.admin.groups import describe_group, group_offsets, is_note_group, list_groups
from fencepost.client.admin.partitions import partitions_of
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.diagnose.collect.affected import data_partitions, merged, pending_offsets, read_offsets
from fencepost.diagnose.collect.look import ends_of, hidden_topics, now_ms
from fencepost.diagnose.collect.partitions import collect_lso
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, GroupSnapshot, GroupsSnapshot, Look
from fencepost.spelling import similar_to


def collect_groups(client: KafkaClient, most_pending: int | None = None, *, with_notes: bool = False) -> GroupsSnapshot:
    """All consumer groups, with the offsets that they have committed, and those in transactions.

    `most_pending` limits the questions for the latter, if a group has not committed an offset for the partition before.
    `with_notes` adds the groups in which the Spark sink keeps its notes, which may seem to lag.
    """
    listed = list_groups(client)
    groups = [group for group in listed.found.values() if with_notes or not is_note_group(group.group_id)]
    existing = partitions_of(client)
    # While a transaction with offsets is open, the last stable offset of the partition that keeps them is behind.
    homes = ends_of(client, [where for where in existing if where.topic == OFFSETS_TOPIC])
    behind = {where.partition for where, ends in homes.found.items() if ends.gap > 0}
    pending = pending_offsets(client, groups, behind, most_pending)
    read = read_offsets(client, groups)
    offsets = merged(read.found, pending.found)
    # A group may keep offsets of a topic that was deleted.
    ends = ends_of(client, sorted({where for found in offsets.values() for where in found} & set(existing)))
    return GroupsSnapshot(
        now_ms=now_ms(),
        listed=tuple(groups),
        left_out=len(listed.found) - len(groups),
        offsets=offsets,
        ends=ends.found,
        problems=(
            *hidden_topics(client),
            *(*listed.problems, *homes.problems, *pending.problems, *read.problems, *ends.problems),
        ),
    )


def collect_group(client: KafkaClient, group_id: str) -> GroupSnapshot | tuple[str, ...]:
    """One group; if the cluster does not know it, the groups that have a similar name."""
    listed = list_groups(client)
    group = listed.found.get(group_id)
    if group is None:
        if listed.problems:
            raise ClientError(f"it is not known whether there is a group {group_id}: {listed.problems[0]}")
        return similar_to(group_id, listed.found)
    described = describe_group(client, group)
    partitions = data_partitions(client)
    offsets = group_offsets(client, {group_id: group.coordinator}, partitions)
    found = offsets.found.get(group_id, {})
    assigned = {where for member in (described.members if described is not None else ()) for where in member.partitions}
    topics = {where.topic for where in {*found, *assigned}} & {where.topic for where in partitions}
    if any(at.is_pending for at in found.values()):
        topics.add(OFFSETS_TOPIC)
    return GroupSnapshot(
        group=group,
        described=described,
        offsets=found,
        lso=collect_lso(client, sorted(topics), with_groups=False) if topics else Look(now_ms=now_ms(), ends={}),
        problems=(*hidden_topics(client), *offsets.problems),
    )
