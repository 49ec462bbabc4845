"""Asks for the offsets of the consumer groups that may wait on some partitions."""

from __future__ import annotations

from collections.abc import Collection

from fencepost.client.admin.answers import Answers, NamedPartition
from fencepost.client.admin.groups import GroupOffset, GroupOffsets, group_offsets, list_groups
from fencepost.client.admin.partitions import partitions_of
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, TXN_TOPIC
from fencepost.machines.txn.records import partition_for

INTERNAL = (OFFSETS_TOPIC, TXN_TOPIC)


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
    coordinators = {group.group_id: group.coordinator for group in listed.found.values()}
    read = group_offsets(client, coordinators, data) if data else Answers[str, GroupOffsets]()
    found: dict[str, dict[NamedPartition, GroupOffset]] = {id_: dict(offsets) for id_, offsets in read.found.items()}
    problems = [*listed.problems, *read.problems]
    if homes:
        count = len(client.topic(OFFSETS_TOPIC).leaders)
        kept = {id_: node for id_, node in coordinators.items() if partition_for(id_, count) in homes}
        written = group_offsets(client, kept, data_partitions(client))
        problems += written.problems
        for group_id, offsets in written.found.items():
            found.setdefault(group_id, {}).update((where, at) for where, at in offsets.items() if at.is_pending)
    return Answers({id_: offsets for id_, offsets in found.items() if offsets}, problems)
