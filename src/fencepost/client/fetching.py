"""Reads record batches from the leaders of partitions, and knows which of them a read_committed consumer drops."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from fencepost.client.admin.answers import DEADLINE_S, NamedPartition
from fencepost.client.admin.partitions import EARLIEST, READ_UNCOMMITTED, list_offsets
from fencepost.client.client import KafkaClient, TopicInfo, retry
from fencepost.client.connection import BrokerConnection
from fencepost.client.failures import BrokerError, ClientError, DeadlinePassed, Unreachable
from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader, Buffer, decode_marker
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.records import Record, iter_batches, iter_records

# Both limits are soft: a broker always sends the first batch whole.
FETCH_BYTES = 4 << 20
PARTITION_BYTES = 1 << 20
FETCH_WAIT_MS = 500
EMPTY_FETCHES = 5
# How long a reader waits for a leader that moves.
PATIENCE_S = 10.0
PAUSE_S = 0.2
# How long a topic may be missing in the answers before it counts as deleted: brokers learn about topics one by one.
GONE_AFTER_S = 3.0
GONE = frozenset({errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_ID, errors.INCONSISTENT_TOPIC_ID})


class Isolation:
    """One fetch, batch by batch. `aborted` is its list of aborted transactions: first offset and producer id."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(aborted)
        self._dropping: set[int] = set()

    def delivers(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the application gets the records of this batch. Ask for every batch, in the order of the log."""
        while self._waiting and self._waiting[0][0] <= header.last_offset:
            self._dropping.add(self._waiting.pop(0)[1])
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None and not marker.commit:
                self._dropping.discard(marker.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._dropping)


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


def fetch_partition(
    client: KafkaClient,
    where: NamedPartition,
    position: int,
    isolation_level: int,
    max_wait_ms: int = 0,
    partition_bytes: int = PARTITION_BYTES,
) -> FetchedPartition:
    """Fetch from one partition of the topic that has this name now. Raises ClientError, also for an error code."""
    topic, leader = client.topic(where.topic), client.leader(*where)
    found = fetch_partitions(
        client, leader, topic, {where.partition: position}, isolation_level, max_wait_ms, partition_bytes
    )[where.partition]
    if found.error_code:
        client.topic(where.topic, fresh=True)
        raise BrokerError(found.error_code, f"reading {where}")
    return found


def read_batches(
    client: KafkaClient, where: NamedPartition, start: int, end: int, fetch_bytes: int = FETCH_BYTES
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Every batch, committed or not, with offsets from `start` to before `end`. A request asks for `fetch_bytes`."""
    position, empty = start, 0
    while position < end and empty < EMPTY_FETCHES:
        fetch = partial(fetch_partition, client, where, position, READ_UNCOMMITTED, FETCH_WAIT_MS, fetch_bytes)
        empty += 1  # `end` existed when it was asked for, so several empty answers mean that the records are deleted.
        for header, batch in iter_batches(retry(fetch, DEADLINE_S).records):
            if header.base_offset >= end:
                return
            empty = 0
            if header.last_offset >= position:
                position = header.last_offset + 1
                yield header, batch


class TopicGone(ClientError):
    """The topic was deleted while it was read."""


class TopicReader:
    """Fetches from the partitions of one topic, never from a topic of the same name that was created later."""

    def __init__(self, client: KafkaClient, topic: str, patience_s: float = PATIENCE_S) -> None:
        self._client = client
        self._patience_s = patience_s
        self._missing_since: float | None = None
        self.topic = client.topic(topic, fresh=True)

    def fetch(
        self,
        where: NamedPartition,
        position: int,
        isolation_level: int,
        wait_ms: int = 0,
        partition_bytes: int = PARTITION_BYTES,
    ) -> FetchedPartition:
        """Fetch one partition; try again for a while if its leader moves. OFFSET_OUT_OF_RANGE is returned."""
        deadline = time.monotonic() + self._patience_s
        while True:
            problem: ClientError
            try:
                leader = self._client.leader(*where)
                positions = {where.partition: position}
                found = fetch_partitions(
                    self._client, leader, self.topic, positions, isolation_level, wait_ms, partition_bytes
                )[where.partition]
                if found.error_code in (errors.NONE, errors.OFFSET_OUT_OF_RANGE):
                    return found
                problem = BrokerError(found.error_code, f"reading {where}")
            except (BrokerError, Unreachable) as e:
                problem = e
            self.check(problem)
            if time.monotonic() > deadline:
                raise problem
            time.sleep(PAUSE_S)

    def check(self, problem: ClientError) -> None:
        """Raise if it makes no sense to try again; else look where the leaders are now."""
        if isinstance(problem, BrokerError) and problem.code not in errors.RETRIABLE | GONE:
            raise problem
        if isinstance(problem, Unreachable) and problem.patience_s <= 0:
            raise problem
        try:
            now = self._client.refresh([self.topic.name]).get(self.topic.name)
        except (BrokerError, Unreachable):
            return
        if now is not None and now.topic_id == self.topic.topic_id:
            self._missing_since = None
            return
        if now is not None:
            raise TopicGone(f"topic {self.topic.name} was deleted, and created again")
        since = self._missing_since = self._missing_since or time.monotonic()
        if time.monotonic() - since > GONE_AFTER_S:
            raise TopicGone(f"topic {self.topic.name} was deleted")

    def nearest(self, where: NamedPartition, position: int) -> int:
        """Where to continue after OFFSET_OUT_OF_RANGE: where the log starts or, if it became shorter, where it ends."""
        time.sleep(PAUSE_S)
        first = list_offsets(self._client, [where], timestamp=EARLIEST)
        end = list_offsets(self._client, [where])
        if problems := first.problems + end.problems:
            raise DeadlinePassed(problems[0])
        return min(max(position, first.found[where]), end.found[where])
