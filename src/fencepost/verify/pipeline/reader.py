"""Reads topics as a read_committed consumer does; knows how far they are written, and how long it may be held back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import READ_COMMITTED, describe_producers
from fencepost.client.admin.transactions import describe_transactions, list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError, Unreachable
from fencepost.client.fetching import FetchedPartition, fetch_partitions
from fencepost.protocol import errors
from fencepost.protocol.records import Record
from fencepost.protocol.topic_partition import TopicPartition


class CommittedReader:
    def __init__(self, client: KafkaClient, start: Mapping[TopicPartition, int]) -> None:
        self._client = client
        self.positions = dict(start)
        self.high_watermarks = dict(start)
        self.last_stable_offsets = dict(start)

    @property
    def written(self) -> int:
        """Grows with every record and marker, committed or not."""
        return sum(self.high_watermarks.values())

    @property
    def is_at_end(self) -> bool:
        """All is read, and no transaction is open."""
        return self.has_read(self.high_watermarks)

    @property
    def is_held_back(self) -> bool:
        """An open transaction keeps readers from what was written behind its first record."""
        return any(self.last_stable_offsets[where] < end for where, end in self.high_watermarks.items())

    def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self.positions[where] >= end for where, end in ends.items())

    def poll(self, max_wait_ms: int = 0) -> Iterator[tuple[TopicPartition, list[Record]]]:
        """One fetch from each leader. A broker that cannot be reached now is asked next time. Raises BrokerError."""
        for topic in dict.fromkeys(topic for topic, _ in self.positions):
            try:
                yield from self._poll_topic(topic, max_wait_ms)
            except Unreachable:
                self._refresh(topic)

    def _poll_topic(self, topic: str, max_wait_ms: int) -> Iterator[tuple[TopicPartition, list[Record]]]:
        info = self._client.topic(topic)
        by_leader: dict[int, dict[int, int]] = {}
        for (name, partition), position in self.positions.items():
            if name == topic:
                by_leader.setdefault(info.leaders[partition], {})[partition] = position
        for node_id, positions in by_leader.items():
            if node_id < 0:
                self._refresh(topic)
                continue
            fetched = fetch_partitions(
                self._client, self._client.broker(node_id), info, positions, READ_COMMITTED, max_wait_ms
            )
            for partition, found in fetched.items():
                if found.error_code:
                    self._meet(topic, partition, found.error_code)
                    continue
                records = self._take((topic, partition), found)
                if records:
                    yield (topic, partition), records

    def _take(self, where: TopicPartition, fetched: FetchedPartition) -> list[Record]:
        self.high_watermarks[where] = max(self.high_watermarks[where], fetched.high_watermark)
        self.last_stable_offsets[where] = fetched.last_stable_offset
        records, self.positions[where] = fetched.delivered(self.positions[where])
        return records

    def _meet(self, topic: str, partition: int, code: int) -> None:
        if code not in errors.RETRIABLE:
            raise BrokerError(code, f"reading {topic}-{partition}")
        self._refresh(topic)

    def _refresh(self, topic: str) -> None:
        try:
            self._client.topic(topic, fresh=True)
        except (Unreachable, BrokerError):
            return  # The next poll asks again.


# The usual transaction.timeout.ms is 60 s: a transaction that a killed program left open ends by then.
USUAL_S = 75.0
# A coordinator looks for transactions that have timed out every ten seconds.
LATE_S = 15.0
# No run waits for longer than this, whatever the timeout is.
LONGEST_S = 15 * 60.0
# Kafka: a transaction of a two-phase commit (KIP-939) has this timeout, and only its own producer ends it.
NEVER_MS = 2**31 - 1


class Patience(NamedTuple):
    """How long to wait for transactions to end, and for which."""

    seconds: float
    why: str


def patience_for(client: KafkaClient, partitions: Iterable[NamedPartition]) -> Patience:
    """Until the last transaction that is open on the partitions has timed out, as far as the cluster tells its timeout.

    At most `LONGEST_S`.
    """
    try:
        return patience_of(_timeouts_ms(client, list(partitions)))
    except ClientError:
        return patience_of({})


def patience_of(timeouts_ms: Mapping[str, int]) -> Patience:
    """`timeouts_ms`: of each transactional id whose transaction is open."""
    ending_s = {id_: timeout_ms / 1000 for id_, timeout_ms in timeouts_ms.items() if timeout_ms < NEVER_MS}
    if not ending_s or max(ending_s.values()) + LATE_S <= USUAL_S:
        endless = next((id_ for id_ in timeouts_ms if id_ not in ending_s), None)
        if endless is not None:
            why = f"the transaction of {endless} is still open, and no timeout ends it: {_waiting(USUAL_S)}"
            return Patience(USUAL_S, why)
        return Patience(USUAL_S, "a transaction is still open: waiting until its timeout ends it")
    longest = max(ending_s, key=ending_s.__getitem__)
    seconds = min(ending_s[longest] + LATE_S, LONGEST_S)
    return Patience(
        seconds,
        f"the transaction of {longest} is still open, and its timeout ends it after up to {ending_s[longest]:g} s: "
        f"{_waiting(seconds)}",
    )


def _waiting(seconds: float) -> str:
    return f"waiting for up to {seconds:g} s; Ctrl-C judges what was seen"


def _timeouts_ms(client: KafkaClient, partitions: list[NamedPartition]) -> dict[str, int]:
    producers = describe_producers(client, partitions).found.values()
    ids = {each.producer_id for found in producers for each in found if each.txn_start_offset >= 0}
    if not ids:
        return {}
    listed = list_transactions(client, producer_ids=ids).found
    described = describe_transactions(client, {name: txn.coordinator for name, txn in listed.items()}).found
    return {name: txn.timeout_ms for name, txn in described.items()}
