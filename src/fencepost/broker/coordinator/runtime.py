"""Keeps a coordinator's state in one partition of an internal topic: append, apply, answer.

The records of a partition, applied in order, give the state of its shard. A request or a timer reads the state, changes
nothing, and yields records. `StateLog.write` appends them as one batch, all or none, and then applies each of them.
The caller answers when `write` has returned. So a state changes in one way only:

    live      a decision yields records -> append -> apply each -> answer
    loading                                          apply the last record of each key

If the append fails, nothing was applied and there is nothing to undo: the caller answers with the error code. An error
in `apply` stops the process (HalfDone): the record is in the log.

Records of a transaction are applied as pending. A marker of the partition, whichever request wrote it, decides about
them through `apply_marker`. Loading reads the markers in `loading.py` before it applies: records of committed
transactions count, those of aborted ones are skipped, and the rest is pending.
Follows Kafka's CoordinatorRuntime, without threads, snapshots and replication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from fencepost.broker.coordinator.loading import EachRecord, load_latest
from fencepost.machines.partition.partition import Partition
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch


class NotCoordinator(Exception):
    """The client must ask for the coordinator again (NOT_COORDINATOR)."""


Record = TypeVar("Record")
RecordIn = TypeVar("RecordIn", contravariant=True)
KeyAndValue = tuple[bytes, bytes | None]

# Kafka: every batch of a coordinator has this sequence, with or without a producer, and no batch counts on from it.
BASE_SEQUENCE = 0
NO_PRODUCER = -1
# In a batch: its own lengths and deltas, and a key. Records of all kinds are longer.
LEAST_RECORD_BYTES = 16


class Writer(NamedTuple):
    """The producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


class Shard(Protocol[RecordIn]):
    """The state machine of one partition: its records make its state, and nothing else does."""

    def apply(self, record: RecordIn, offset: int, producer_id: int | None) -> None:
        """Take in the record at `offset`. With a producer id it is pending until that producer's marker."""
        ...

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction ended: its pending records count from now on (commit) or are dropped (abort)."""
        ...


class StateLog(Generic[Record]):
    """One partition of an internal topic, and the shard that its records make."""

    __slots__ = ("_apply", "_decode", "_encode", "partition")

    def __init__(
        self,
        partition: Partition,
        shard: Shard[Record],
        encode: Callable[[Record], KeyAndValue],
        decode: Callable[[bytes, bytes, int], Record | None],
    ) -> None:
        """`decode(key, value, offset)` gives the record, or None for one that this version does not know."""
        self.partition = partition
        self._apply = shard.apply
        self._encode = encode
        self._decode = decode
        partition.on_marker = shard.apply_marker

    def write(
        self, records: Sequence[Record], now_ms: int, writer: Writer | None = None, is_limited: bool = True
    ) -> int:
        """Append the records as one batch and apply them; return NONE, or the error of an append that failed.

        With a `writer` the batch is transactional: ask `Partition.check_offset_commit` first. Unless `is_limited` is
        False, a batch above `max.message.bytes` of the topic is refused.
        """
        if not records:
            return errors.NONE
        if is_limited and len(records) * LEAST_RECORD_BYTES > self.partition.max_message_bytes:
            return errors.MESSAGE_TOO_LARGE  # To encode them all would take long.
        producer_id, epoch = (NO_PRODUCER, NO_PRODUCER) if writer is None else writer
        batch = encode_batch(
            [self._encode(record) for record in records],
            now_ms,
            producer_id,
            epoch,
            BASE_SEQUENCE,
            transactional=writer is not None,
        )
        if is_limited and len(batch) > self.partition.max_message_bytes:
            return errors.MESSAGE_TOO_LARGE
        pending_id = None if writer is None else producer_id
        offset = self.partition.log.end_offset
        try:
            self.partition.append_internal(batch)
            for delta, record in enumerate(records):
                self._apply(record, offset + delta, pending_id)
        except Exception as e:
            return self._refused(e, offset)
        return errors.NONE

    def write_one(self, record: Record, now_ms: int) -> int:
        """As `write`, for one record outside a transaction: the most frequent case, without a list."""
        key, value = self._encode(record)
        partition = self.partition
        offset = partition.log.end_offset
        try:
            partition.append_record(key, value, now_ms)
            self._apply(record, offset, None)
        except Exception as e:
            return self._refused(e, offset)
        return errors.NONE

    def _refused(self, error: Exception, offset: int) -> int:
        self.partition.not_appended(error, offset)
        return errors.NOT_COORDINATOR  # Kafka: stands for KAFKA_STORAGE_ERROR; clients try again.

    def load(self, each: EachRecord | None = None) -> None:
        """Apply the records of the log, in their order.

        A later record of a key replaces the earlier ones, which the cleaner may delete at any time. So only the last
        record of each key is decoded and applied, and a restart does not wait for the whole history. `each` sees the
        bytes of every record.
        """
        latest = load_latest(self.partition, each)
        for key, (offset, value) in latest.in_order():
            self._load_one(key, value, offset, None)
        for producer_id, key, (offset, value) in latest.pending_in_order():
            self._load_one(key, value, offset, producer_id)

    def _load_one(self, key: bytes, value: bytes, offset: int, producer_id: int | None) -> None:
        record = self._decode(key, value, offset)
        if record is not None:
            self._apply(record, offset, producer_id)
