"""One partition: puts batches in order, fences, and knows what a reader may see.

Duties: every accepted batch gets the next offset; producers are held to their order (`producers.py`);
the last stable offset stands before the oldest open transaction; a reader of committed data is told which
transactions in the range were aborted. A change happens in three steps: decide, append to the log, apply.
Recovery is the last step alone, over the log. The records themselves stay opaque.
Follows Kafka's UnifiedLog and LogValidator (KIP-98, KIP-890).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from fencepost.machines.log.interface import AbortedTxn, Log, StorageFailed
from fencepost.machines.log.retention import Retention, first_kept_offset
from fencepost.machines.log.times import NOT_FOUND, FoundOffset, first_not_before, max_timestamp
from fencepost.machines.partition.leader_epochs import LeaderEpochs
from fencepost.machines.partition.producers import (
    OpenTxn,
    Producer,
    Producers,
    SentBatch,
    decide_batch,
    decide_marker,
    decide_offset_commit,
    decode_snapshot,
    encode_snapshot,
    find_duplicate,
    is_of_earlier_txn,
    open_txns_of,
)
from fencepost.protocol import errors
from fencepost.protocol.batch import (
    CONTROL,
    HEADER,
    LEADER_EPOCH,
    LENGTH_AT,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Corrupt,
    decode_header,
    decode_marker,
    encode_marker,
    encode_stored_record,
    stamp,
    stamp_append_time,
)
from fencepost.protocol.produced import (
    DEFAULT_MAX_MESSAGE_BYTES,
    RecordError,
    RefusedBatch,
    check_produce_batch,
    most_unpacked_bytes,
    refuse_records,
)
from fencepost.protocol.records import find_record_without_key
from fencepost.protocol.transaction_version import TV0, TransactionVersion

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
DELETE_ALL = -1

DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000
MAX_INT64 = 2**63 - 1

NO_PRODUCER = b"\xff" * 8

_INT32 = struct.Struct(">i")

Hook = Callable[["Partition"], None]


class AppendResult(NamedTuple):
    """The answer to a Produce request for one partition."""

    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    message: str | None = None
    duplicate: bool = False  # Stored before: the offset is that of the first time.
    record_errors: Sequence[RecordError] = ()


class Fetched(NamedTuple):
    """The answer to a Fetch request for one partition."""

    error: int
    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # (producer id, first offset) of aborted transactions in the records; None for readers of everything.
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
    )

    def __init__(self, log: Log, topic: str, index: int, leader_epoch: int = 0) -> None:
        self.log = log
        self.topic = topic
        self.index = index
        self.leader_epochs = LeaderEpochs(log.leader_epochs())
        self.leader_epochs.begin(leader_epoch, log.end_offset)
        self.producers = Producers()
        self.last_stable_offset = log.end_offset
        # Where a reader of committed data stops, as an address, so that no fetch has to search for it.
        self.stable_address = log.end_address
        # No aborted transaction ends after this offset.
        self.last_aborted_offset = -1
        self.aborted_bytes = 0  # Of aborted transactions, as far as this process has seen them end.
        # Aborted transactions that the disk refused to index; they are kept here until it takes them.
        self.unindexed: list[AbortedTxn] = []
        # Topic settings, changed at will by whoever owns the partition.
        self.max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self.log_append_time = False
        self.timestamp_before_max_ms = MAX_INT64
        self.timestamp_after_max_ms = DEFAULT_TIMESTAMP_AFTER_MAX_MS
        self.compacted = False
        # Called after every change of the offset they name: for fetches that wait.
        self.on_high_watermark: Hook | None = None
        self.on_last_stable_offset: Hook | None = None
        # Called with (producer id, commit) after every marker: for coordinators with records that wait for it.
        self.on_marker: Callable[[int, bool], None] | None = None

    @property
    def high_watermark(self) -> int:
        """With one replica, all that is stored is replicated."""
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
        """Append what a client produced; `decide_batch` explains `verified` and `transaction_version`."""
        header = check_produce_batch(records, self.max_message_bytes)
        if isinstance(header, RefusedBatch):
            # Kafka: of what is no batch at all it does not say where the log starts.
            return self._refuse(header.code, header.message)._replace(log_start_offset=-1)
        if (
            header.max_timestamp > now_ms + self.timestamp_after_max_ms
            or header.base_timestamp < now_ms - self.timestamp_before_max_ms
            or self.compacted
        ):
            refused = self._refuse_by_settings(records, header, now_ms)
            if refused is not None:
                return refused
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
            batch = stamp_append_time(records, base_offset, self.leader_epochs.current, now_ms)
        else:
            batch = stamp(records, base_offset, self.leader_epochs.current)
        try:
            address = log.append(batch, base_offset, last_offset, max_timestamp)
        except StorageFailed as e:
            return self._refuse(errors.KAFKA_STORAGE_ERROR, str(e))
        if producer_id >= 0:
            sent = SentBatch(header.base_sequence, header.last_sequence, last_offset, max_timestamp)
            self.producers.apply_batch(
                producer_id, header.producer_epoch, sent, transactional, base_offset, address, len(batch)
            )
        self._advance()
        return AppendResult(errors.NONE, base_offset, append_time, log.start_offset)

    def _refuse(self, code: int, message: str | None = None, record_errors: Sequence[RecordError] = ()) -> AppendResult:
        return AppendResult(code, -1, NO_TIMESTAMP, self.log.start_offset, message, record_errors=record_errors)

    def _refuse_by_settings(self, records: Buffer, header: BatchHeader, now_ms: int) -> AppendResult | None:
        """Hold a batch against the topic's settings.

        Differs: Kafka looks at the timestamp of every record, and corrects the greatest one in the header.
        """
        fault = None
        allowed = None
        if not self.log_append_time:
            allowed = early, late = now_ms - self.timestamp_before_max_ms, now_ms + self.timestamp_after_max_ms
            for timestamp in (header.base_timestamp, header.max_timestamp):
                if timestamp != NO_TIMESTAMP and not early <= timestamp <= late:
                    reason = f"timestamp {timestamp} is not between {early} and {late}"
                    fault = RefusedBatch(errors.INVALID_TIMESTAMP, reason)
        try:
            if fault is None and self.compacted:
                place = find_record_without_key(records, most_unpacked_bytes(header.length))
                if place is not None:
                    reason = f"record {place} has no key, and topic {self.topic} is compacted"
                    fault = RefusedBatch(errors.INVALID_RECORD, reason)
            if fault is None:
                return None
            fault = refuse_records(records, header, f"{self.topic}-{self.index}", allowed, self.compacted) or fault
        except Corrupt as e:
            fault = RefusedBatch(errors.INVALID_RECORD, str(e))
        return self._refuse(*fault)

    def _duplicate_or_refuse(
        self, error: int, producer: Producer | None, header: BatchHeader, verified: bool
    ) -> AppendResult:
        """A batch that cannot follow either came before, or is refused.

        Kafka looks for duplicates first. The outcome is the same: a duplicate never passes `decide_batch`,
        and this way the ordinary batch pays nothing.
        """
        who = f"producer {header.producer_id} with epoch {header.producer_epoch}"
        if producer is not None:
            sent = find_duplicate(producer, header.producer_epoch, header.base_sequence, header.last_sequence)
            if sent is not None and header.is_transactional and is_of_earlier_txn(producer, sent, verified):
                # Differs: for Kafka it is a duplicate like any other. librdkafka counts on from the last answer that it
                # got when it aborts a transaction, so it would be told that its next one is stored, and it is not.
                return self._refuse(
                    errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"{who} sent sequences {header.base_sequence} to {header.last_sequence} in an earlier transaction",
                )
            if sent is not None:
                # Kafka: a duplicate is answered with the timestamp of the batch as its append time.
                return AppendResult(
                    errors.NONE, sent.first_offset, sent.timestamp, self.log.start_offset, duplicate=True
                )
            if error == errors.INVALID_PRODUCER_EPOCH:
                return self._refuse(error, f"{who} is fenced: epoch {producer.epoch} was seen")
        if error == errors.INVALID_TXN_STATE:
            if header.is_transactional:
                return self._refuse(error, f"{who} has no open transaction on {self.topic}-{self.index}")
            return self._refuse(error, f"{who} sent a plain batch inside a transaction")
        last = -1
        if producer is not None and producer.batches and producer.epoch == header.producer_epoch:
            last = producer.batches[-1].last_sequence
        return self._refuse(error, f"{who} sent sequence {header.base_sequence}, the last one is {last}")

    def check_offset_commit(self, producer_id: int, epoch: int, verified: bool) -> int:
        """Whether `append_internal` may write a transactional batch for this producer: NONE, 47 or 48."""
        return decide_offset_commit(self.producers.by_id.get(producer_id), epoch, verified)

    def append_record(self, key: bytes, value: bytes | None, now_ms: int) -> None:
        """As `append_internal`, for the most frequent: one plain record of a coordinator. Raises StorageFailed."""
        log = self.log
        offset = log.end_offset
        batch = encode_stored_record(key, value, now_ms, offset, self.leader_epochs.current)
        log.append(batch, offset, offset, now_ms)
        self._advance()

    def append_internal(self, batch: bytes) -> int:
        """Append a batch that a coordinator built with `encode_batch`; return its base offset.

        Nothing is refused: for a batch with a producer id ask `check_offset_commit` first.
        Raises StorageFailed.
        """
        fields = HEADER.unpack_from(batch)
        log = self.log
        base_offset = log.end_offset
        last_offset = base_offset + fields[6]
        max_timestamp = fields[8]
        address = log.append(
            stamp(batch, base_offset, self.leader_epochs.current), base_offset, last_offset, max_timestamp
        )
        if fields[9] >= 0:
            self._apply_data(BatchHeader._make(fields)._replace(base_offset=base_offset), address)
        self._advance()
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

        A marker without an open transaction is written too: it fences what may still be on its way.
        """
        error = decide_marker(self.producers.by_id.get(producer_id), epoch, coordinator_epoch, transaction_version)
        if error:
            return error
        log = self.log
        offset = log.end_offset
        batch = encode_marker(producer_id, epoch, commit, coordinator_epoch, now_ms, offset, self.leader_epochs.current)
        try:
            log.append(batch, offset, offset, now_ms)
        except StorageFailed:
            return errors.KAFKA_STORAGE_ERROR
        self._apply_marker(producer_id, epoch, commit, coordinator_epoch, now_ms, offset)
        if self.on_marker is not None:
            self.on_marker(producer_id, commit)
        self._advance()
        return errors.NONE

    def _apply_data(self, header: BatchHeader, address: int) -> None:
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

    def _apply_marker(
        self,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        timestamp: int,
        offset: int,
        last_indexed: int = -1,
    ) -> None:
        """Take a marker in that is in the log, live or at recovery; up to `last_indexed` the index has the entries."""
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
        """The marker is in the log already, so an index that cannot be written must not be forgotten."""
        while self.unindexed:
            try:
                self.log.append_aborted(self.unindexed[0])
            except StorageFailed:
                return
            del self.unindexed[0]

    def _advance(self) -> None:
        """The log grew: move the offsets that readers see, and tell those who wait for them."""
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
        """Whether a transaction of this producer and epoch has data here: then all is verified."""
        producer = self.producers.by_id.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch seen of this producer, -1 if it is not known."""
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

    def fetch(self, offset: int, max_bytes: int, read_committed: bool = False) -> Fetched:
        """Whole batches from the one with `offset` on, to the end of the log or the last stable offset."""
        log = self.log
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
            records = log.read(offset, max_bytes, log.end_address) if offset < high_watermark else b""
            return Fetched(errors.NONE, records, high_watermark, lso, start_offset, None)
        if offset >= lso:
            return Fetched(errors.NONE, b"", high_watermark, lso, start_offset, [])
        records = log.read(offset, max_bytes, self.stable_address)
        aborted = self._aborted_in(offset, records) if offset <= self.last_aborted_offset else []
        return Fetched(errors.NONE, records, high_watermark, lso, start_offset, aborted)

    def _aborted_in(self, offset: int, records: bytes) -> list[tuple[int, int]]:
        """The aborted transactions that have data in `records`, which were read from `offset` on."""
        # Differs: Kafka also names aborted transactions that begin behind the records, as far as its index is coarse.
        upper = offset_after(records)
        found = self.log.aborted(offset, upper)
        if self.unindexed:
            found = found + [a for a in self.unindexed if a.last_offset >= offset and a.first_offset < upper]
        return [(a.producer_id, a.first_offset) for a in found]

    def offset_for(self, timestamp: int, read_committed: bool = False) -> FoundOffset:
        """Answer ListOffsets: latest (-1), earliest (-2), newest (-3), or the first record from a time on."""
        end = self.last_stable_offset if read_committed else self.log.end_offset
        epoch = self.leader_epochs.current
        if timestamp == LATEST_TIMESTAMP:
            return FoundOffset(end, NO_TIMESTAMP, epoch)
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return FoundOffset(self.log.start_offset, NO_TIMESTAMP, self.leader_epochs.at(self.log.start_offset))
        if timestamp == MAX_TIMESTAMP:
            newest = max_timestamp(self.log)
            found = NOT_FOUND if newest is None else first_not_before(self.log, newest)
        elif timestamp >= 0:
            found = first_not_before(self.log, timestamp)
        else:
            return NOT_FOUND
        return found if found.offset < end else NOT_FOUND

    # Getting shorter.

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Answer DeleteRecords: let the log begin at `offset`, or at its end (-1); error code, and where it begins."""
        log = self.log
        if offset == DELETE_ALL:
            offset = log.end_offset
        if not 0 <= offset <= log.end_offset:
            return errors.OFFSET_OUT_OF_RANGE, -1
        if offset > log.start_offset:
            self.save_snapshot()
            try:
                log.advance_start(offset)
            except StorageFailed:
                return errors.KAFKA_STORAGE_ERROR, -1
            self._move_open_txns()
            self._advance()
        return errors.NONE, log.start_offset

    def apply_retention(self, retention: Retention, now_ms: int) -> bool:
        """Delete the segments that are too old or too much; whether there were any. Raises StorageFailed."""
        # Differs: Kafka deletes up to the high watermark, even of a transaction that is open. Here the last stable
        # offset is the limit, so that what a transaction wrote is there when it commits.
        log = self.log
        segments = log.segments()
        if not segments:
            return False
        start = first_kept_offset(segments, log.end_offset, self.last_stable_offset, retention, now_ms)
        start = max(start, log.start_offset)
        if start == log.end_offset:
            log.roll()  # The name of the new segment is what remembers the offset.
        segments = log.segments()
        if len(segments) < 2 or segments[1].base_offset > start:
            return False
        # Segments go only once a snapshot knows their producers.
        self.save_snapshot()
        log.advance_start(start)
        return True

    def _move_open_txns(self) -> None:
        """Kafka: the last stable offset is not before the log's start, even of a transaction that began before it."""
        start = self.log.start_offset
        for producer_id, txn in self.producers.open_txns.items():
            if txn.first_offset < start:
                self.producers.open_txns[producer_id] = OpenTxn(start, self.log.address_of(start))

    # Recovery.

    def save_snapshot(self) -> None:
        """Keep the producers' state with the log, so that a restart has little to replay."""
        self._index_pending()
        if self.unindexed:
            return  # A replay from here would never meet the markers that these come from.
        # Without a snapshot the replay is longer, nothing else.
        with suppress(StorageFailed):
            self.log.save_snapshot(encode_snapshot(self.producers.by_id))

    @classmethod
    def recover(
        cls,
        log: Log,
        topic: str,
        index: int,
        leader_epoch: int = 0,
        *,
        now_ms: int | None = None,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
    ) -> Partition:
        """The partition as it was when its log was last written: the newest snapshot, and what came after it.

        With `now_ms`, producers that were silent for too long are not brought back.
        """
        partition = cls(log, topic, index, leader_epoch)
        from_offset = partition._load_snapshot()
        partition._replay(from_offset)
        partition.aborted_bytes = 0  # It counts from the start of the process.
        partition._move_open_txns()
        if now_ms is not None:
            partition.expire_producers(now_ms, producer_id_expiration_ms)
        oldest = partition.producers.oldest_txn()
        if oldest is not None:
            partition.last_stable_offset, partition.stable_address = oldest
        # The index may hold more than was replayed.
        partition.last_aborted_offset = log.end_offset - 1
        if log.wants_snapshot():
            partition.save_snapshot()
        return partition

    def _load_snapshot(self) -> int:
        """Take the log's snapshot into the state; return the offset to replay from."""
        log = self.log
        found = log.load_snapshot()
        if found is None:
            return 0  # All that is there, also what is in front of the log's start.
        from_offset, snapshot = found
        try:
            producers = decode_snapshot(snapshot)
        except Corrupt:
            return 0
        self.producers.by_id = producers
        for first_offset, producer_id in open_txns_of(producers.items()):
            self.producers.open_txns[producer_id] = OpenTxn(first_offset, log.address_of(first_offset))
        return from_offset

    def _replay(self, from_offset: int) -> None:
        log = self.log
        epochs = LeaderEpochs(log.leader_epochs())
        indexed = log.aborted(from_offset, log.end_offset)
        last_indexed = indexed[-1].last_offset if indexed else -1
        known_epoch = b""
        for address, _, head in log.scan(from_offset):
            if head[PRODUCER_ID] == NO_PRODUCER and head[LEADER_EPOCH] == known_epoch:
                continue  # It changes nothing.
            known_epoch = head[LEADER_EPOCH]
            header = decode_header(head)
            if header.base_offset < from_offset:
                continue  # The snapshot was taken after this batch.
            epochs.begin(header.leader_epoch, header.base_offset)
            if header.producer_id < 0:
                continue
            if not header.attributes & CONTROL:
                self._apply_data(header, address)
                continue
            marker = decode_marker(head)
            if marker is not None:
                self._apply_marker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.commit,
                    marker.coordinator_epoch,
                    marker.timestamp,
                    marker.offset,
                    last_indexed,
                )
        epochs.begin(self.leader_epochs.current, log.end_offset)
        self.leader_epochs = epochs


def offset_after(records: bytes) -> int:
    """The offset that follows the last batch of `records`, which are walked batch by batch."""
    pos = last = 0
    size = len(records)
    while pos < size:
        last = pos
        pos += PREFIX_BYTES + _INT32.unpack_from(records, pos + LENGTH_AT)[0]
    return decode_header(records, last).last_offset + 1 if records else 0
