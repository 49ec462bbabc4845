"""Fetch: the record batches of some partitions of one topic, from their leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.client.client import KafkaClient, TopicInfo
from fencepost.client.connection import BrokerConnection
from fencepost.client.isolation import Isolation
from fencepost.protocol.batch import Buffer
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.records import Record, iter_batches, iter_records

# Both limits are soft: a broker always sends the first batch whole.
FETCH_BYTES = 4 << 20
PARTITION_BYTES = 1 << 20


class FetchedPartition(NamedTuple):
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]  # Producer id and first offset; empty with READ_UNCOMMITTED.
    records: Buffer

    def delivered(self, position: int) -> tuple[list[Record], int]:
        """The records from a position on that a consumer gives to its application, and where it continues."""
        isolation = Isolation((first_offset, producer_id) for producer_id, first_offset in self.aborted)
        records: list[Record] = []
        next_position = position
        for header, batch in iter_batches(self.records):
            if isolation.delivers(header, batch):
                records += [record for record in iter_records(batch) if record.offset >= position]
            next_position = max(next_position, header.last_offset + 1)
        return records, next_position


def fetch_partitions(
    client: KafkaClient,
    leader: BrokerConnection,
    topic: TopicInfo,
    positions: Mapping[int, int],
    isolation_level: int,
    max_wait_ms: int,
    partition_bytes: int = PARTITION_BYTES,
) -> dict[int, FetchedPartition]:
    """Fetch records from the leader of some partitions, from their positions on. Raises Unreachable.

    Brokers since Apache Kafka 3.1 are asked by the id of the topic, so that a topic of the same name that was created
    later is never taken for it.
    """
    partitions = [
        FetchRequest.FetchPartition(number, fetch_offset=position, partition_max_bytes=partition_bytes)
        for number, position in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation_level,
        topics=[FetchRequest.FetchTopic(topic.name, topic.topic_id, partitions)],
    )
    response = client.send(leader, request)
    return {
        p.partition_index: FetchedPartition(
            p.error_code or response.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            tuple((txn.producer_id, txn.first_offset) for txn in p.aborted_transactions or ()),
            p.records or b"",
        )
        for found in response.responses
        for p in found.partitions
    }
