"""Asks for the offsets of the consumer groups that may wait on some partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fencepost.client.admin.answers import Answers, NamedPartition
from fencepost.client.admin.groups import (
    GroupOffset,
    GroupOffsets,
    ListedGroup,
    describe_groups,
    group_offsets,
    is_note_group,
    list_groups,
)
from fencepost.client.admin.partitions import partitions_of
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.counting import counted
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.machines.txn.records import partition_for

INTERNAL = (OFFSETS_TOPIC, TXN_TOPIC)
WITHOUT_MEMBERS = ("Empty", "Dead")
# On a large cluster, every group times every partition can be millions of offsets. So many take part of a second.
MOST_ASKED = 20_000
NOTHING_COMMITTED = GroupOffset(None, False)


def data_partitions(client: KafkaClient) -> list[NamedPartition]:
    """The partitions that groups read: all but those of Kafka's own topics."""
    return [where for where in partitions_of(client) if where.topic not in INTERNAL]


def offsets_on(client: KafkaClient, partitions: Collection[NamedPartition]) -> Answers[str, GroupOffsets]:
    """The offsets of all groups on these partitions.

    For a partition of `__consumer_offsets`, the answer has the offsets in transactions of the groups that it keeps,
    on whichever partition they are.
    """
    data = [where for where in partitions if where.topic not in INTERNAL]
    homes = {where.partition for where in partitions if where.topic == OFFSETS_TOPIC}
    if not data and not homes:
        return Answers()
    try:
        return _offsets_on(client, data, homes)
    except ClientError as e:
        return Answers(problems=[f"it is not known which consumer groups wait: {e}"])


def _offsets_on(
    client: KafkaClient, data: Collection[NamedPartition], homes: Collection[int]
) -> Answers[str, GroupOffsets]:
    listed = list_groups(client)
    groups = [group for group in listed.found.values() if not is_note_group(group.group_id)]
    read = read_offsets(client, groups, data) if data else Answers[str, GroupOffsets]()
    pending = pending_offsets(client, groups, homes, MOST_ASKED)
    return Answers(merged(read.found, pending.found), [*listed.problems, *read.problems, *pending.problems])


def read_offsets(
    client: KafkaClient, groups: Collection[ListedGroup], partitions: Collection[NamedPartition] | None = None
) -> Answers[str, GroupOffsets]:
    """The offsets of groups on these partitions or on all, also where a member reads without a committed offset.

    For few groups and partitions, the answer also has offsets that are the first of a group and in a transaction.
    """
    asked = partitions if partitions is not None and len(groups) * len(partitions) <= MOST_ASKED else None
    offsets = group_offsets(client, {group.group_id: group.coordinator for group in groups}, asked)
    found: dict[str, GroupOffsets] = {
        id_: {where: at for where, at in committed.items() if partitions is None or where in partitions}
        for id_, committed in offsets.found.items()
    }
    described = describe_groups(client, [group for group in groups if group.state not in WITHOUT_MEMBERS])
    assigned = {
        id_: {
            where: NOTHING_COMMITTED
            for member in membership.members
            for where in member.partitions
            if partitions is None or where in partitions
        }
        for id_, membership in described.found.items()
    }
    return Answers(merged(assigned, found), [*offsets.problems, *described.problems])


def pending_offsets(
    client: KafkaClient, groups: Collection[ListedGroup], homes: Collection[int], at_most: int | None = None
) -> Answers[str, GroupOffsets]:
    """The offsets in transactions of the groups that these partitions of `__consumer_offsets` keep.

    Each group is asked about every partition. `at_most` limits these questions; groups with members come first, and the
    rest is a problem.
    """
    if not homes:
        return Answers()
    count = len(client.topic(OFFSETS_TOPIC).leaders)
    kept = [group for group in groups if partition_for(group.group_id, count) in homes]
    partitions = data_partitions(client)
    asked = kept
    if at_most is not None:
        kept.sort(key=lambda group: group.state in WITHOUT_MEMBERS)
        asked = kept[: max(at_most // max(len(partitions), 1), 1)]
    written = group_offsets(client, {group.group_id: group.coordinator for group in asked}, partitions)
    if left_out := len(kept) - len(asked):
        what = f"{counted(left_out, 'group')} may have a first offset in a transaction"
        written.problems.append(f"{what}; the page of a group and `fencepost group describe` show it")
    found: dict[str, GroupOffsets] = {
        id_: {where: at for where, at in offsets.items() if at.is_pending} for id_, offsets in written.found.items()
    }
    return Answers(found, written.problems)


def merged(first: Mapping[str, GroupOffsets], later: Mapping[str, GroupOffsets]) -> dict[str, GroupOffsets]:
    """Both, without groups that have no offsets; where both have one, that of `later`."""
    both = {id_: {**first.get(id_, {}), **later.get(id_, {})} for id_ in {**first, **later}}
    return {id_: offsets for id_, offsets in both.items() if offsets}
