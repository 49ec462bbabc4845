"""Reads topics as a read_committed consumer does, and knows how far they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fencepost.client.admin.partitions import READ_COMMITTED
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, Unreachable
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
