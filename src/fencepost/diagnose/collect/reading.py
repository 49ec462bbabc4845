"""Reads record batches from the leaders of a topic's partitions, and finds the leaders again when they move."""

from __future__ import annotations

import time

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.fetching import PARTITION_BYTES, FetchedPartition, fetch_partitions
from fencepost.client.admin.partitions import EARLIEST, list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError, DeadlinePassed, Unreachable
from fencepost.diagnose.tail.outcomes import LogBatch
from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader, Buffer, Corrupt, decode_batch, decode_marker
from fencepost.protocol.records import iter_batches

PATIENCE_S = 10.0
PAUSE_S = 0.2
# How long a topic may be missing in the answers before it counts as deleted: brokers learn about topics one by one.
GONE_AFTER_S = 3.0
GONE = frozenset({errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_ID, errors.INCONSISTENT_TOPIC_ID})


class TopicGone(ClientError):
    """The topic was deleted while it was read."""


class DamagedBatch(ClientError):
    """A batch that is not what its checksum says: nothing in it can be trusted."""

    def __init__(self, where: NamedPartition, header: BatchHeader, problem: Corrupt) -> None:
        super().__init__(f"{where}: the record batch at offset {header.base_offset} is damaged: {problem}")
        self.where = where
        self.next_offset = header.last_offset + 1


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


def sound_batches(
    where: NamedPartition, records: Buffer, position: int, end: int | None = None
) -> list[tuple[LogBatch, Buffer]]:
    """The batches of an answer that reach to the position or beyond, and begin before the end.

    Those before a damaged batch are returned. Raises DamagedBatch if there are none.
    """
    found: list[tuple[LogBatch, Buffer]] = []
    for header, batch in iter_batches(records):
        if end is not None and header.base_offset >= end:
            break
        try:
            decode_batch(batch)  # Verifies the checksum.
        except Corrupt as e:
            if found:
                break
            raise DamagedBatch(where, header, e) from None
        if header.last_offset >= position:
            found.append((LogBatch(header, decode_marker(batch)), batch))
    return found
