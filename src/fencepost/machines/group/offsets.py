"""The offsets that groups have committed, of one partition of `__consumer_offsets`.

An offset that was committed in a transaction is pending, under its producer id, until the marker: COMMIT makes it the
group's offset unless a later record already did, ABORT drops it. While it is pending, a fetch that asks for stable
offsets is refused, and the offset of its partition does not expire.

`decide_*` read and give records; `apply_offset` and `apply_marker` are the only changes. Loading applies the offsets
that the markers of the log left (`broker/coordinator/loading.py`).
Follows Kafka's OffsetMetadataManager; KIP-98, 211 and 447.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition

NO_TOPIC_ID = bytes(16)
NO_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    """An offset as it is kept, with the fields of Kafka's OffsetCommitValue."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP  # Only commits of v2-4 with a retention time have one.
    topic_id: bytes = NO_TOPIC_ID
    # The offset of its record in `__consumer_offsets`: the higher of two is the later.
    record_offset: int = -1


class OffsetRecord(NamedTuple):
    """One record for `__consumer_offsets`; without a value it is a tombstone."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class FetchedOffset(NamedTuple):
    error_code: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


NOT_COMMITTED = FetchedOffset(errors.NONE)
UNSTABLE = FetchedOffset(errors.UNSTABLE_OFFSET_COMMIT)


class Offsets:
    """Committed and pending offsets by group."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # Producer id -> group -> partition -> offset. No empty dict is kept at any level.
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        self._open_txns: dict[str, set[int]] = {}  # Group -> producer ids with a pending offset of it.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Offsets):
            return NotImplemented
        return self._committed == other._committed and self._pending == other._pending

    # Questions.

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._committed.get(group_id, {})

    def has_open_txn(self, group_id: str) -> bool:
        return group_id in self._open_txns

    def group_ids(self) -> set[str]:
        return self._committed.keys() | self._open_txns.keys()

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        open_txns = self._open_txns.get(group_id, ())
        return any((topic, partition) in self._pending[pid][group_id] for pid in open_txns)

    def fetch(
        self, group_id: str, topic: str, partition: int, require_stable: bool, topic_id: bytes = NO_TOPIC_ID
    ) -> FetchedOffset:
        """One committed offset, as OffsetFetch reports it."""
        if require_stable and self.is_unstable(group_id, topic, partition):
            return UNSTABLE
        stored = self.committed(group_id).get((topic, partition))
        if stored is None or _is_of_another_topic(stored.topic_id, topic_id):
            return NOT_COMMITTED
        return FetchedOffset(errors.NONE, stored.offset, stored.leader_epoch, stored.metadata)

    def fetch_all(self, group_id: str, require_stable: bool) -> dict[str, list[tuple[int, FetchedOffset]]]:
        """Every committed offset of a group: topic -> (partition, offset)."""
        topics: dict[str, list[tuple[int, FetchedOffset]]] = {}
        for topic, partition in self.committed(group_id):
            fetched = self.fetch(group_id, topic, partition, require_stable)
            topics.setdefault(topic, []).append((partition, fetched))
        return topics

    def has_any(self, group_id: str) -> bool:
        """Whether the group has an offset, committed or pending."""
        return group_id in self._committed or group_id in self._open_txns

    def decide_delete(self, group_id: str, partitions: Iterable[TopicPartition] | None = None) -> list[OffsetRecord]:
        """Tombstones for these partitions of a group (None: all), as far as they have an offset."""
        known = dict.fromkeys(self.committed(group_id))
        for producer_id in sorted(self._open_txns.get(group_id, ())):
            known.update(dict.fromkeys(self._pending[producer_id][group_id]))
        wanted = known if partitions is None else dict.fromkeys(tp for tp in partitions if tp in known)
        return [OffsetRecord(group_id, topic, partition, None) for topic, partition in wanted]

    def decide_topics_deleted(self, topics: set[str]) -> list[OffsetRecord]:
        """Tombstones for all groups' offsets of topics that were deleted."""
        records: list[OffsetRecord] = []
        for group_id in sorted(self.group_ids()):
            records += [record for record in self.decide_delete(group_id) if record.topic in topics]
        return records

    # Changes.

    def apply_offset(self, record: OffsetRecord, producer_id: int | None, record_offset: int) -> None:
        """Take one record in. `producer_id` is that of its batch if the batch is transactional, else None."""
        group_id, key = record.group_id, (record.topic, record.partition)
        if record.value is None:
            self._forget(group_id, key)
            return
        value = CommittedOffset(*record.value[:-1], record_offset)
        if producer_id is None:
            self._committed.setdefault(group_id, {})[key] = value
        else:
            self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[key] = value
            self._open_txns.setdefault(group_id, set()).add(producer_id)

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """End the transaction of a producer: its pending offsets count from now on, or are dropped."""
        for group_id, pending in self._pending.pop(producer_id, {}).items():
            self._close_txn(group_id, producer_id)
            if not commit:
                continue
            committed = self._committed.setdefault(group_id, {})
            for key, value in pending.items():
                stored = committed.get(key)
                # A plain commit may have been written in between: the later record wins, as after compaction.
                if stored is None or value.record_offset > stored.record_offset:
                    committed[key] = value

    def _forget(self, group_id: str, key: TopicPartition) -> None:
        committed = self._committed.get(group_id, {})
        committed.pop(key, None)
        if not committed:
            self._committed.pop(group_id, None)
        for producer_id in list(self._open_txns.get(group_id, ())):
            pending = self._pending[producer_id][group_id]
            pending.pop(key, None)
            if not pending:
                del self._pending[producer_id][group_id]
                self._close_txn(group_id, producer_id)
            if not self._pending[producer_id]:
                del self._pending[producer_id]

    def _close_txn(self, group_id: str, producer_id: int) -> None:
        open_txns = self._open_txns[group_id]
        open_txns.remove(producer_id)
        if not open_txns:
            del self._open_txns[group_id]


def _is_of_another_topic(stored_id: bytes, asked_id: bytes) -> bool:
    """An offset of a deleted topic does not count for a new topic of the same name."""
    return NO_TOPIC_ID not in (stored_id, asked_id) and stored_id != asked_id
