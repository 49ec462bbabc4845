"""How far consumer groups have read some partitions, by the offsets that they committed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fencepost.client.admin.answers import Answers, NamedPartition
from fencepost.client.admin.asking import ask
from fencepost.client.client import COORDINATOR_MOVED, GROUP, KafkaClient
from fencepost.client.failures import ClientError
from fencepost.protocol import errors
from fencepost.protocol.messages import ListGroupsRequest, OffsetFetchRequest

NAMES_IN_OFFSET_FETCH = 9  # Later versions name topics by their id.


def list_group_ids(client: KafkaClient) -> Answers[str, int]:
    """The groups of all coordinators, each with the broker that answered for it."""
    answers: Answers[str, int] = Answers()
    for node_id in sorted(client.brokers()):
        try:
            response = ask(client, node_id, ListGroupsRequest())
        except ClientError as e:
            answers.problems.append(f"broker {node_id} could not list its groups: {e}")
            continue
        answers.found.update((group.group_id, node_id) for group in response.groups)
    return answers


def group_positions(
    client: KafkaClient, group_id: str, partitions: Collection[NamedPartition]
) -> dict[NamedPartition, int]:
    """The committed offsets of a group on some partitions; without those where it committed none.

    Offsets of open transactions do not count. Raises ClientError.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    old, new = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestTopics
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[old(topic, numbers) for topic, numbers in by_topic.items()],
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id, topics=[new(topic, partition_indexes=numbers) for topic, numbers in by_topic.items()]
            )
        ],
        require_stable=False,
    )

    def moved(response: Any) -> int:
        answer = response.groups[0] if response.groups else response
        return int(answer.error_code) if answer.error_code in COORDINATOR_MOVED else errors.NONE

    response = client.ask_coordinator(group_id, GROUP, request, moved, at_most=NAMES_IN_OFFSET_FETCH, deadline_s=10.0)
    answer = response.groups[0] if response.groups else response
    return {
        NamedPartition(topic.name, p.partition_index): int(p.committed_offset)
        for topic in answer.topics
        for p in topic.partitions
        if p.error_code == errors.NONE and p.committed_offset >= 0
    }
