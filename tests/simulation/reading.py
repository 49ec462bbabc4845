"""The requests of consumers, and how they read records and offsets from the responses."""

from __future__ import annotations

from typing import Any

from fencepost.client.fetching import Isolation
from fencepost.protocol.messages import FetchRequest, OffsetFetchRequest
from fencepost.protocol.records import iter_batches, iter_records
from fencepost.protocol.topic_partition import TopicPartition
from tests.simulation.history import Read, Violation

FETCH_VERSION = 12
READ_COMMITTED = 1


def fetch_request(
    positions: dict[TopicPartition, int], read_committed: bool, max_bytes: int, max_wait_ms: int = 0
) -> FetchRequest:
    topics: dict[str, list[Any]] = {}
    for (topic, index), position in positions.items():
        partition = FetchRequest.FetchPartition(index, -1, position, partition_max_bytes=max_bytes)
        topics.setdefault(topic, []).append(partition)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED if read_committed else 0,
        topics=[FetchRequest.FetchTopic(topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def read(where: TopicPartition, fetched: Any, position: int, read_committed: bool) -> tuple[list[Read], int]:
    """The records from `position` on that the application gets, and the next position."""
    if fetched.last_stable_offset > fetched.high_watermark:
        raise Violation("LSO", f"{where}: {fetched.last_stable_offset} is above {fetched.high_watermark}")
    if (fetched.aborted_transactions is not None) != read_committed:
        raise Violation("fetch", f"{where}: only read_committed readers get a list of aborted transactions")
    isolation = Isolation((a.first_offset, a.producer_id) for a in fetched.aborted_transactions or ())
    reads = []
    for header, batch in iter_batches(fetched.records or b""):
        if header.last_offset < position:
            continue
        if read_committed and header.last_offset >= fetched.last_stable_offset:
            raise Violation("LSO", f"{where}: offset {header.last_offset} is not below {fetched.last_stable_offset}")
        if isolation.delivers(header, batch):
            for record in iter_records(batch):
                if record.offset >= position:
                    assert record.value is not None
                    reads.append(Read(record.offset, record.value.decode()))
        position = header.last_offset + 1
    return reads, position


def partitions_of(response: Any) -> list[tuple[TopicPartition, Any]]:
    return [((topic.topic, p.partition_index), p) for topic in response.responses for p in topic.partitions]


def offset_fetch(group: str, places: list[TopicPartition], require_stable: bool) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    wanted = [OffsetFetchRequest.OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in topics.items()]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=wanted)], require_stable=require_stable
    )


def fetched_offsets(response: Any) -> dict[TopicPartition, int]:
    group = response.groups[0]
    return {(t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions}


def offset_fetch_error(response: Any) -> int:
    group = response.groups[0]
    codes: list[int] = [group.error_code, *(p.error_code for t in group.topics for p in t.partitions)]
    return max(codes)
