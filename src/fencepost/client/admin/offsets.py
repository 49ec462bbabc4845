"""The committed offsets of one group, which its coordinator keeps: read, and committed in requests that it takes.

A coordinator appends the offsets of a request as one record batch. If the batch is larger than the `max.message.bytes`
of `__consumer_offsets` (1,048,588 by default), Apache Kafka answers UNKNOWN_SERVER_ERROR, at every retry. Each record
repeats the names of group and topic, so the size of the request itself says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.client.client import DEFAULT_DEADLINE_S, GROUP, KafkaClient
from fencepost.client.failures import BrokerError
from fencepost.protocol import errors
from fencepost.protocol.messages import OffsetCommitRequest, OffsetFetchRequest
from fencepost.protocol.topic_partition import TopicPartition

# A quarter of the default, for clusters that allow less.
MOST_APPENDED_BYTES = 256 << 10
# What a record takes beside its names and its metadata: Apache Kafka 4.3.1 writes up to 53 bytes.
RECORD_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: int
    metadata: str = ""


def split_offsets(
    group_id: str, offsets: Iterable[OffsetToCommit], most_bytes: int = MOST_APPENDED_BYTES
) -> list[dict[str, list[OffsetToCommit]]]:
    """The offsets of each request, by topic: one request at least. An offset that is too large alone goes alone."""
    requests: list[dict[str, list[OffsetToCommit]]] = [{}]
    size = 0
    for offset in offsets:
        added = _record_bytes(group_id, offset)
        if requests[-1] and size + added > most_bytes:
            requests.append({})
            size = 0
        size += added
        requests[-1].setdefault(offset.topic, []).append(offset)
    return requests


def _record_bytes(group_id: str, offset: OffsetToCommit) -> int:
    return RECORD_OVERHEAD_BYTES + sum(len(text.encode()) for text in (group_id, offset.topic, offset.metadata))


# Later versions of OffsetFetch and OffsetCommit name topics by their id.
LAST_WITH_TOPIC_NAMES = 9


def committed_offsets(
    client: KafkaClient,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    require_stable: bool = True,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> dict[TopicPartition, tuple[int, str]]:
    """Committed offsets of a group, as (offset, metadata).

    require_stable: wait for transactions that still change them to end.
    """
    return _fetch_offsets(client, group_id, partitions, require_stable, deadline_s)


def all_committed_offsets(
    client: KafkaClient, group_id: str, *, require_stable: bool = True, deadline_s: float = DEFAULT_DEADLINE_S
) -> dict[TopicPartition, tuple[int, str]]:
    """All committed offsets of a group, as (offset, metadata).

    require_stable: wait for transactions that still change them to end.
    """
    return _fetch_offsets(client, group_id, None, require_stable, deadline_s)


def _fetch_offsets(
    client: KafkaClient,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    require_stable: bool,
    deadline_s: float,
) -> dict[TopicPartition, tuple[int, str]]:
    def first_error(response: Any) -> int:
        answer = group_answers(response)[0]
        codes = [answer.error_code, *(p.error_code for p in partition_answers(answer).values())]
        return next((int(code) for code in codes if code), errors.NONE)

    response = client.ask_coordinator(
        group_id,
        GROUP,
        offset_fetch_request([group_id], partitions, require_stable),
        first_error,
        at_most=LAST_WITH_TOPIC_NAMES,
        retry_also=frozenset({errors.UNSTABLE_OFFSET_COMMIT}),
        deadline_s=deadline_s,
    )
    if (code := first_error(response)) != errors.NONE:
        raise BrokerError(code, f"offsets of group {group_id}")
    return {
        where: (p.committed_offset, p.metadata or "")
        for where, p in partition_answers(group_answers(response)[0]).items()
        if p.committed_offset >= 0
    }


def group_answers(response: Any) -> Sequence[Any]:
    """The answer of OffsetFetch about each group. In old versions, the response itself is about the only group."""
    return response.groups or [response]


def partition_answers(group: Any) -> dict[TopicPartition, Any]:
    """What the answer about a group says of each partition."""
    return {(t.name, p.partition_index): p for t in group.topics for p in t.partitions}


def offset_fetch_request(
    group_ids: Sequence[str], partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> OffsetFetchRequest:
    """Ask for the offsets of some partitions, or of all (None). Old versions ask for the first group only."""
    by_topic: dict[str, list[int]] | None = None
    if partitions is not None:
        by_topic = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
    old, new = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestTopics
    topics = None if by_topic is None else list(by_topic.items())
    return OffsetFetchRequest(
        group_id=group_ids[0],
        topics=None if topics is None else [old(t, p) for t, p in topics],
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id, topics=None if topics is None else [new(t, partition_indexes=p) for t, p in topics]
            )
            for group_id in group_ids
        ],
        require_stable=require_stable,
    )


def commit_offsets(
    client: KafkaClient, group_id: str, offsets: Mapping[TopicPartition, int], deadline_s: float = DEFAULT_DEADLINE_S
) -> None:
    """Commit offsets of a group outside any transaction. The broker refuses this if the group has members.

    deadline_s: for each request. If one fails, the offsets of those before it are committed.
    """
    wanted = (OffsetToCommit(topic, partition, offset) for (topic, partition), offset in offsets.items())
    for by_topic in split_offsets(group_id, wanted):
        _commit_offsets(client, group_id, by_topic, deadline_s)


def _commit_offsets(
    client: KafkaClient, group_id: str, by_topic: Mapping[str, Iterable[OffsetToCommit]], deadline_s: float
) -> None:
    topic, entry = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        group_id,
        -1,
        "",
        topics=[
            topic(name, partitions=[entry(o.partition, o.offset, -1, o.metadata) for o in of_topic])
            for name, of_topic in by_topic.items()
        ],
    )

    def first_error(response: Any) -> int:
        return next((int(p.error_code) for t in response.topics for p in t.partitions if p.error_code), errors.NONE)

    response = client.ask_coordinator(
        group_id, GROUP, request, first_error, at_most=LAST_WITH_TOPIC_NAMES, deadline_s=deadline_s
    )
    if (code := first_error(response)) != errors.NONE:
        raise BrokerError(code, f"committing offsets of group {group_id}")
