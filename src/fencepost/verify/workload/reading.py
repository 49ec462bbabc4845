"""Readers that note what they read: fetches of this package's own client, with the rules of Kafka's consumers.

One of them also asks for the committed offsets of groups, which must not be those of an open transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.offsets import all_committed_offsets
from fencepost.client.admin.partitions import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.fetching import fetch_partitions
from fencepost.protocol import errors
from fencepost.verify.history import Assign, Committed, Poll
from fencepost.verify.workload.notes import Notes, now

WAIT_MS = 100
PAUSE_S = 0.05
ASK_EVERY_S = 0.1
ASK_DEADLINE_S = 1.0
ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}


class FetchedValues(NamedTuple):
    records: Sequence[tuple[int, str]]  # Offset and value.
    next_offset: int
    has_answer: bool = True


def fetch_once(
    client: KafkaClient, topic: str, partition: int, offset: int, isolation_level: int, wait_ms: int = WAIT_MS
) -> FetchedValues:
    """The records of one fetch from an offset on, as a consumer with this isolation level delivers them."""
    try:
        leader = client.leader(topic, partition)
        found = fetch_partitions(client, leader, client.topic(topic), {partition: offset}, isolation_level, wait_ms)
        fetched = found[partition]
        if fetched.error_code:
            client.topic(topic, fresh=True)
            # Records that a retention has deleted are passed over, as auto.offset.reset=earliest does.
            start = start_of(client, topic, partition) if fetched.error_code == errors.OFFSET_OUT_OF_RANGE else 0
            return FetchedValues((), max(start, offset), has_answer=start > offset)
    except ClientError:
        _refresh(client, topic)
        return FetchedValues((), offset, has_answer=False)
    records, next_offset = fetched.delivered(offset)
    return FetchedValues([(record.offset, (record.value or b"").decode()) for record in records], next_offset)


def start_of(client: KafkaClient, topic: str, partition: int) -> int:
    """The first offset that a partition has."""
    where = NamedPartition(topic, partition)
    return list_offsets(client, [where], timestamp=EARLIEST).found.get(where, 0)


def offsets_now(client: KafkaClient, group_id: str) -> list[tuple[str, int, int]] | None:
    """The committed offsets of a group, as topic, partition and offset; None if its coordinator does not answer.

    The question does not wait for open transactions: a broker must answer with the offsets of committed ones.
    """
    try:
        found = all_committed_offsets(client, group_id, require_stable=False, deadline_s=ASK_DEADLINE_S)
    except ClientError:
        return None
    return sorted((*where, offset) for where, (offset, _) in found.items())


def _refresh(client: KafkaClient, topic: str) -> None:
    try:
        client.topic(topic, fresh=True)
    except ClientError:
        return


class Follower:
    """Reads every partition from its beginning on, until it is told to stop.

    One that takes the place of another continues behind the last record that the other noted.
    """

    def __init__(
        self,
        notes: Notes,
        settings: Mapping[str, object],
        isolation: str,
        topics: Mapping[str, int],
        groups: Sequence[str] = (),
    ) -> None:
        self._notes = notes
        self._client = KafkaClient(settings)
        self._isolation = isolation
        places = [(topic, index) for topic, count in topics.items() for index in range(count)]
        self._positions = {where: notes.last_read.get(where, 0) for where in places}
        self._answers: dict[str, list[tuple[str, int, int]]] = {group_id: [] for group_id in groups}
        self._asked_at_s = 0.0

    def run(self, stop: threading.Event) -> None:
        for (topic, partition), offset in self._positions.items():
            self._notes.note(Assign(now(), self._notes.by, self._isolation, topic, partition, offset))
        while not stop.is_set():
            if time.monotonic() >= self._asked_at_s + ASK_EVERY_S:
                self._ask(stop)
            if not self.read_all_once():
                stop.wait(PAUSE_S)
        self._client.close()

    def read_all_once(self) -> bool:
        """Fetch once from each partition; return whether there was something to read."""
        has_read = False
        for (topic, partition), offset in self._positions.items():
            level = ISOLATION_LEVELS[self._isolation]
            found = fetch_once(self._client, topic, partition, offset, level, wait_ms=0)
            self._positions[topic, partition] = found.next_offset
            if found.records:
                has_read = True
                self._notes.note(Poll(now(), self._notes.by, topic, partition, found.records, found.next_offset))
        return has_read

    def _ask(self, stop: threading.Event) -> None:
        """Note the offsets of the groups that have changed, up to the first group whose coordinator is silent."""
        for group_id, before in self._answers.items():
            found = None if stop.is_set() else offsets_now(self._client, group_id)
            if found is None:
                # It is the last one to be asked next time, so that it does not hide the others.
                self._answers[group_id] = self._answers.pop(group_id)
                break
            if found != before:
                self._answers[group_id] = found
                self._notes.note(Committed(now(), self._notes.by, group_id, found))
        self._asked_at_s = time.monotonic()
