"""One partition: orders batches, fences producers, and decides which records a reader may see.

Duties: give every accepted batch the next offset; hold producers to their order (`producers.py`); keep the last stable
offset before the oldest open transaction; name the aborted transactions among the records of a read_committed fetch.
A change has three steps: decide, append to the log, apply. Recovery (`recovery.py`) is the last step, over the log.
An error before the batch is in the log changes nothing; one after that raises HalfDone.
A stored batch keeps the records that the client sent; `protocol/produced.py` says which of them are read before that.
Follows Kafka's UnifiedLog and LogValidator (KIP-98, KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from fencepost.machines.log.damage import find_damage, whole_part
from fencepost.machines.log.interface import AbortedTxn, HalfDone, Log, LogFenced, LogTailUnknown, StorageFailed
from fencepost.machines.partition.leader_epochs import LeaderEpochs
from fencepost.machines.partition.producers import (
    OpenTxn,
    Producer,
    Producers,
    SentBatch,
    Verifications,
    decide_batch,
    decide_marker,
    decide_offset_commit,
    encode_snapshot,
    find_duplicate,
    is_of_earlier_txn,
    repeats_earlier_txn,
    why_refused,
)
from fencepost.protocol import errors
from fencepost.protocol.batch import (
    HEADER,
    LAST_OFFSET_DELTA_FIELD,
    MAX_TIMESTAMP_FIELD,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    PRODUCER_ID_FIELD,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Part,
    encode_marker,
    encode_stored_record,
    is_writable,
    stamp,
    stamp_append_time,
    stamp_in_place,
)
from fencepost.protocol.produced import (
    DEFAULT_MAX_MESSAGE_BYTES,
    RecordError,
    RefusedBatch,
    check_produce_batch,
    refuse_by_settings,
)
from fencepost.protocol.transaction_version import TV0, TransactionVersion

DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000
MAX_INT64 = 2**63 - 1


Hook = Callable[["Partition"], None]


class AppendResult(NamedTuple):
    """The answer to a Produce request for one partition."""

    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    message: str | None = None
    duplicate: bool = False  # The batch was stored before, at this offset.
    record_errors: Sequence[RecordError] = ()


class Fetched(NamedTuple):
    """The answer to a Fetch request for one partition."""

    error: int
    records: Part
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # (producer id, first offset) of aborted transactions in the records; None for read_uncommitted.
    aborted: list[tuple[int, int]] | None


class ProducerDescription(NamedTuple):
    """One line of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Partition:
    """A log with its producers. Reads of `high_watermark` and `last_stable_offset` cost nothing."""

    __slots__ = (
        "aborted_bytes",
        "compacted",
        "index",
        "last_aborted_offset",
        "last_stable_offset",
        "leader_epochs",
        "log",
        "log_append_time",
        "max_message_bytes",
        "on_high_watermark",
        "on_last_stable_offset",
        "on_marker",
        "producers",
        "stable_address",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "topic",
        "unindexed",
        "verifications",
    )

    def __init__(self, log: Log, topic: str, index: int, leader_epoch: int = 0) -> None:
        self.log = log
        self.topic = topic
        self.index = index
        self.leader_epochs = LeaderEpochs(log.leader_epochs())
        self.leader_epochs.begin(leader_epoch, log.end_offset)
        self.producers = Producers()
        self.verifications = Verifications()
        self.last_stable_offset = log.end_offset
        # Where a read_committed fetch ends, as an address in the log, so that no fetch has to search for it.
        self.stable_address = log.end_address
        # No aborted transaction ends after this offset.
        self.last_aborted_offset = -1
        self.aborted_bytes = 0  # Bytes of the transactions that were aborted since the start of the process.
        # Aborted transactions that could not be written to the index yet, because the disk refused.
        self.unindexed: list[AbortedTxn] = []
        # Settings of the topic. The cluster changes them.
        self.max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self.log_append_time = False
        self.timestamp_before_max_ms = MAX_INT64
        self.timestamp_after_max_ms = DEFAULT_TIMESTAMP_AFTER_MAX_MS
        self.compacted = False
        # Called after every change of the offset, for fetches that wait.
        self.on_high_watermark: Hook | None = None
        self.on_last_stable_offset: Hook | None = None
        # Called with (producer id, commit) after every marker, for coordinators with records that wait for it.
        self.on_marker: Callable[[int, bool], None] | None = None

    @property
    def high_watermark(self) -> int:
        """There is one replica, so every stored record is replicated."""
        return self.log.end_offset

    # Appending.

    def append(
        self,
        records: Buffer,
        now_ms: int,
        *,
        verified: bool = False,
        transaction_version: TransactionVersion = TV0,
    ) -> AppendResult:
        """Append the batch of a client; `decide_batch` explains `verified` and `transaction_version`."""
        header = check_produce_batch(records, self.max_message_bytes)
        if isinstance(header, RefusedBatch):
            # Kafka: the reply to bytes that are no batch at all does not have the log's start.
            return self._refuse(header.code, header.message)._replace(log_start_offset=-1)
        if (
            header.max_timestamp > now_ms + self.timestamp_after_max_ms
            or header.base_timestamp < now_ms - self.timestamp_before_max_ms
            or self.compacted
        ):
            refused = self._check_settings(records, header, now_ms)
            if refused is not None:
                return self._refuse(*refused)
        producer_id = header.producer_id
        transactional = header.attributes & TRANSACTIONAL != 0
        if producer_id >= 0:
            producer = self.producers.by_id.get(producer_id)
            error = decide_batch(
                producer, header.producer_epoch, header.base_sequence, transactional, verified, transaction_version
            )
            if error:
                return self._duplicate_or_refuse(error, producer, header, verified)
        if header.length + PREFIX_BYTES != len(records):
            records = records[: header.length + PREFIX_BYTES]
        log = self.log
        base_offset = log.end_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        append_time = NO_TIMESTAMP
        if self.log_append_time:
            append_time = max_timestamp = now_ms
            batch: Buffer = stamp_append_time(records, base_offset, self.leader_epochs.current, now_ms)
        elif is_writable(records):
            batch = stamp_in_place(records, base_offset, self.leader_epochs.current)
        else:
            batch = stamp(records, base_offset, self.leader_epochs.current)
        try:
            address = log.append(batch, base_offset, last_offset, max_timestamp)
            if producer_id >= 0:
                sent = SentBatch(header.base_sequence, header.last_sequence, last_offset, max_timestamp)
                self.producers.apply_batch(
                    producer_id, header.producer_epoch, sent, transactional, base_offset, address, len(batch)
                )
            self.advance()
        except Exception as e:
            failure = self.not_appended(e, base_offset)
            return self._refuse(_code_of(failure), str(failure))
        return AppendResult(errors.NONE, base_offset, append_time, log.start_offset)

    def not_appended(self, error: Exception, base_offset: int) -> StorageFailed:
        """The error of an append that the log refused. Any other error is raised, and HalfDone if the log has
        the batch: then a retry would be stored twice, or a coordinator would forget what it decided."""
        if isinstance(error, StorageFailed) and self.log.end_offset == base_offset:
            return error
        if isinstance(error, LogTailUnknown) or self.log.end_offset == base_offset:
            raise error
        what = f"{self.topic}-{self.index}: the last batch is in the log, and the state in memory may lack it"
        raise HalfDone(what, error) from error

    def _refuse(self, code: int, message: str | None = None, record_errors: Sequence[RecordError] = ()) -> AppendResult:
        return AppendResult(code, -1, NO_TIMESTAMP, self.log.start_offset, message, record_errors=record_errors)

    def _check_settings(self, records: Buffer, header: BatchHeader, now_ms: int) -> RefusedBatch | None:
        allowed = None
        if not self.log_append_time:
            allowed = now_ms - self.timestamp_before_max_ms, now_ms + self.timestamp_after_max_ms
        return refuse_by_settings(records, header, f"{self.topic}-{self.index}", allowed, self.compacted)

    def _duplicate_or_refuse(
        self, error: int, producer: Producer | None, header: BatchHeader, verified: bool
    ) -> AppendResult:
        """A batch that cannot follow was either sent before, or is refused.

        Kafka looks for duplicates first. The outcome is the same: a duplicate never passes `decide_batch`, and this
        order costs an ordinary batch nothing.
        """
        if producer is not None:
            sent = find_duplicate(producer, header.producer_epoch, header.base_sequence, header.last_sequence)
            if sent is not None and header.is_transactional and is_of_earlier_txn(producer, sent, verified):
                # Differs: Kafka answers that the batch is a duplicate. After an abort, librdkafka continues from the
                # last sequence that was acknowledged, so Kafka drops a record of its next transaction and reports
                # success. Fencepost refuses the batch.
                return self._refuse(errors.OUT_OF_ORDER_SEQUENCE_NUMBER, repeats_earlier_txn(header))
            if sent is not None:
                # Kafka: the reply to a duplicate has the timestamp of the batch as its append time.
                return AppendResult(
                    errors.NONE, sent.first_offset, sent.timestamp, self.log.start_offset, duplicate=True
                )
        return self._refuse(error, why_refused(error, producer, header, f"{self.topic}-{self.index}"))

    def check_offset_commit(self, producer_id: int, epoch: int, verified: bool) -> int:
        """Whether `append_internal` may write a transactional batch for this producer: NONE, 47 or 48."""
        return decide_offset_commit(self.producers.by_id.get(producer_id), epoch, verified)

    def append_record(self, key: bytes, value: bytes | None, now_ms: int) -> None:
        """As `append_internal`, for the most frequent case: one plain record of a coordinator. Raises StorageFailed."""
        log = self.log
        offset = log.end_offset
        batch = encode_stored_record(key, value, now_ms, offset, self.leader_epochs.current)
        try:
            log.append(batch, offset, offset, now_ms)
            self.advance()
        except Exception as e:
            raise self.not_appended(e, offset) from None

    def append_internal(self, batch: bytes) -> int:
        """Append a batch that a coordinator built with `encode_batch`; return its base offset.

        Nothing is refused: for a batch with a producer id ask `check_offset_commit` first.
        Raises StorageFailed.
        """
        fields = HEADER.unpack_from(batch)
        log = self.log
        base_offset = log.end_offset
        last_offset = base_offset + fields[LAST_OFFSET_DELTA_FIELD]
        max_timestamp = fields[MAX_TIMESTAMP_FIELD]
        try:
            address = log.append(
                stamp(batch, base_offset, self.leader_epochs.current), base_offset, last_offset, max_timestamp
            )
            if fields[PRODUCER_ID_FIELD] >= 0:
                self.apply_data(BatchHeader._make(fields)._replace(base_offset=base_offset), address)
            self.advance()
        except Exception as e:
            raise self.not_appended(e, base_offset) from None
        return base_offset

    def write_marker(
        self,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: TransactionVersion = TV0,
    ) -> int:
        """End the producer's transaction on this partition; return NONE or Kafka's error code.

        A marker without an open transaction is written too: it fences requests that are still on their way.
        """
        error = decide_marker(self.producers.by_id.get(producer_id), epoch, coordinator_epoch, transaction_version)
        if error:
            return error
        log = self.log
        offset = log.end_offset
        batch = encode_marker(producer_id, epoch, commit, coordinator_epoch, now_ms, offset, self.leader_epochs.current)
        try:
            log.append(batch, offset, offset, now_ms)
            self.apply_marker(producer_id, epoch, commit, coordinator_epoch, now_ms, offset)
            if self.verifications.by_producer:
                self.verifications.txn_ended(producer_id)
            if self.on_marker is not None:
                self.on_marker(producer_id, commit)
            self.advance()
        except Exception as e:
            return _code_of(self.not_appended(e, offset))
        return errors.NONE

    def apply_data(self, header: BatchHeader, address: int) -> None:
        sent = SentBatch(header.base_sequence, header.last_sequence, header.last_offset, header.max_timestamp)
        self.producers.apply_batch(
            header.producer_id,
            header.producer_epoch,
            sent,
            header.is_transactional,
            header.base_offset,
            address,
            header.size_bytes,
        )

    def apply_marker(
        self,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        timestamp: int,
        offset: int,
        last_indexed: int = -1,
    ) -> None:
        """Take in a marker that is in the log, live or at recovery. The index is complete up to `last_indexed`."""
        first_offset = self.producers.apply_marker(producer_id, epoch, coordinator_epoch, timestamp)
        if first_offset < 0 or commit:
            return
        self.aborted_bytes += self.producers.by_id[producer_id].txn_bytes
        if offset > last_indexed:
            oldest = self.producers.oldest_txn()
            stable_offset = offset + 1 if oldest is None else oldest.first_offset
            self._index_aborted(AbortedTxn(producer_id, first_offset, offset, stable_offset))

    def _index_aborted(self, aborted: AbortedTxn) -> None:
        self.last_aborted_offset = aborted.last_offset
        self.unindexed.append(aborted)
        self._index_pending()

    def _index_pending(self) -> None:
        """Write the missing entries to the index. Their markers are in the log already, so no entry may be lost."""
        while self.unindexed:
            try:
                self.log.append_aborted(self.unindexed[0])
            except StorageFailed:
                return
            del self.unindexed[0]

    def advance(self) -> None:
        """The log changed: move the offsets that readers see, and wake the fetches that wait for them."""
        log = self.log
        before = self.last_stable_offset
        for txn in self.producers.open_txns.values():
            self.last_stable_offset, self.stable_address = txn
            break
        else:
            self.last_stable_offset = log.end_offset
            self.stable_address = log.end_address
        if log.wants_snapshot():
            self.save_snapshot()
        if self.on_high_watermark is not None:
            self.on_high_watermark(self)
        if self.on_last_stable_offset is not None and self.last_stable_offset != before:
            self.on_last_stable_offset(self)

    # Questions about producers.

    def has_open_txn(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch has data here, and is verified by that."""
        producer = self.producers.by_id.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch of this producer, or -1 for an unknown producer."""
        producer = self.producers.by_id.get(producer_id)
        return -1 if producer is None else producer.epoch

    def describe_producers(self) -> list[ProducerDescription]:
        return [
            ProducerDescription(
                producer_id,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else -1,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for producer_id, producer in self.producers.by_id.items()
        ]

    def expire_producers(self, now_ms: int, expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS) -> list[int]:
        """Forget silent producers (`producer.id.expiration.ms`); return their ids."""
        return self.producers.expire(now_ms, expiration_ms)

    # Reading.

    def fetch(self, offset: int, max_bytes: int, read_committed: bool = False, in_place: bool = False) -> Fetched:
        """Read whole batches, from the one with `offset` to the end of the log or the last stable offset.

        `in_place`: the caller only sends the records and never looks at them (`Log.read_in_place`).
        """
        log = self.log
        read: Callable[[int, int, int], Part] = log.read_in_place if in_place else log.read
        high_watermark = log.end_offset
        start_offset = log.start_offset
        lso = self.last_stable_offset
        if not start_offset <= offset <= high_watermark:
            return Fetched(
                errors.OFFSET_OUT_OF_RANGE,
                b"",
                high_watermark,
                lso,
                start_offset,
                [] if read_committed else None,
            )
        if not read_committed:
            records = read(offset, max_bytes, log.end_address) if offset < high_watermark else b""
            return Fetched(errors.NONE, records, high_watermark, lso, start_offset, None)
        if offset >= lso:
            return Fetched(errors.NONE, b"", high_watermark, lso, start_offset, [])
        if offset > self.last_aborted_offset:
            records = read(offset, max_bytes, self.stable_address)
            return Fetched(errors.NONE, records, high_watermark, lso, start_offset, [])
        # The aborted transactions are found by a look at the records.
        seen = log.read(offset, max_bytes, self.stable_address)
        size, upper = whole_part(seen)
        if size < len(seen):
            if not size:
                raise find_damage(log, offset)
            seen = seen[:size]  # The next fetch begins at the damage.
        return Fetched(errors.NONE, seen, high_watermark, lso, start_offset, self._aborted_in(offset, upper))

    def _aborted_in(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """The aborted transactions that have data between these offsets."""
        # Differs: Kafka also names some aborted transactions that begin after the records, because it looks them up by
        # index entries. Fencepost names those with data among the records.
        found = self.log.aborted(offset, upper)
        if self.unindexed:
            found = found + [a for a in self.unindexed if a.last_offset >= offset and a.first_offset < upper]
        return [(a.producer_id, a.first_offset) for a in found]

    def move_open_txns(self, start_address: int) -> None:
        """Kafka: the last stable offset is never before the log's start, even if a transaction began before it."""
        start = self.log.start_offset
        for producer_id, txn in self.producers.open_txns.items():
            if txn.first_offset < start:
                self.producers.open_txns[producer_id] = OpenTxn(start, start_address)

    # Recovery.

    def save_snapshot(self) -> None:
        """Keep the producers' state with the log, so that a restart has little to replay."""
        self._index_pending()
        if self.unindexed:
            return  # A replay from this snapshot would skip the markers of the entries that the index lacks.
        # Without a snapshot the replay takes longer; nothing is lost.
        with suppress(StorageFailed):
            self.log.save_snapshot(encode_snapshot(self.producers.by_id))


def _code_of(failure: StorageFailed) -> int:
    return errors.NOT_LEADER_OR_FOLLOWER if isinstance(failure, LogFenced) else errors.KAFKA_STORAGE_ERROR
