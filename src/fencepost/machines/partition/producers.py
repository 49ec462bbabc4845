"""The producers of one partition: the order of their batches, fencing, and their open transactions.

Duties: store a batch that is sent twice once; refuse a gap in the sequence, a stale epoch and a transactional batch
that the coordinator has not verified; know the first offset of every open transaction. `decide_*` reads. `apply_*`
changes state and never refuses, because recovery replays the log through it. `Verifications` are the batches that wait
for a coordinator on another node.
Follows Kafka's ProducerStateManager, ProducerStateEntry and ProducerAppendInfo (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.protocol.batch import MAX_PRODUCER_EPOCH, MAX_SEQUENCE, BatchHeader, Corrupt, Truncated
from fencepost.protocol.crc import crc32c
from fencepost.protocol.errors import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from fencepost.protocol.transaction_version import TransactionVersion

BATCHES_KEPT = 5
NO_TXN = -1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class SentBatch(NamedTuple):
    """One of a producer's last batches: enough to recognise it when it comes again."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    timestamp: int

    @property
    def offset_delta(self) -> int:
        return (self.last_sequence - self.first_sequence) & MAX_SEQUENCE if self.last_sequence >= 0 else 0

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class OpenTxn(NamedTuple):
    """Where an open transaction began on this partition."""

    first_offset: int
    address: int


class Producer:
    """The state of one producer id on one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_bytes", "txn_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[SentBatch] = []  # The oldest first.
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = -1
        self.txn_bytes = 0  # Bytes of the open transaction, or of the last one; for statistics only.

    def _values(self) -> tuple[object, ...]:
        return self.epoch, self.batches, self.coordinator_epoch, self.last_timestamp, self.txn_first_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producer) and self._values() == other._values()

    def __repr__(self) -> str:
        return f"Producer{self._values()!r}"

    __hash__ = None  # type: ignore[assignment]  # It changes.


def find_duplicate(producer: Producer, epoch: int, first_sequence: int, last_sequence: int) -> SentBatch | None:
    """The batch with exactly these sequences among the last five, if it was sent before."""
    if producer.epoch == epoch:
        for sent in producer.batches:
            if sent.first_sequence == first_sequence and sent.last_sequence == last_sequence:
                return sent
    return None


def is_of_earlier_txn(producer: Producer, sent: SentBatch, verified: bool) -> bool:
    """Whether a batch that was sent before belongs to an earlier transaction than the producer's current one.

    `verified`: the producer is in a transaction, even if it has written nothing to this partition yet.
    """
    if producer.txn_first_offset < 0:
        return verified
    return sent.last_offset < producer.txn_first_offset


def decide_batch(
    producer: Producer | None,
    epoch: int,
    first_sequence: int,
    transactional: bool,
    verified: bool,
    transaction_version: TransactionVersion,
) -> int:
    """Whether a client's batch, known to be no duplicate, may be appended: NONE or Kafka's error code.

    `verified`: the coordinator says that this partition is part of the producer's transaction. `transaction_version`
    is the client's; with TV2 every transaction begins at sequence 0 of a new epoch.
    """
    if producer is None:
        if transactional:
            if not verified:
                return INVALID_TXN_STATE
            if transaction_version.bumps_epoch and first_sequence != 0:
                return OUT_OF_ORDER_SEQUENCE_NUMBER
        # Kafka: a producer id that the partition does not know, or has forgotten, may begin at any sequence.
        return NONE
    if epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    if transactional and not verified and (producer.txn_first_offset < 0 or producer.epoch != epoch):
        return INVALID_TXN_STATE
    if epoch != producer.epoch or not producer.batches:
        if first_sequence != 0:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
    elif first_sequence != (producer.batches[-1].last_sequence + 1) & MAX_SEQUENCE:
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    if not transactional and producer.txn_first_offset >= 0:
        return INVALID_TXN_STATE
    return NONE


def decide_offset_commit(producer: Producer | None, epoch: int, verified: bool) -> int:
    """Whether a coordinator may write for this producer: the checks of `decide_batch` without sequences."""
    if producer is None:
        return NONE if verified else INVALID_TXN_STATE
    if epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    if not verified and (producer.txn_first_offset < 0 or producer.epoch != epoch):
        return INVALID_TXN_STATE
    return NONE


def decide_marker(
    producer: Producer | None, epoch: int, coordinator_epoch: int, transaction_version: TransactionVersion
) -> int:
    """Whether the marker that ends a transaction may be appended: NONE or Kafka's error code."""
    if producer is None:
        return NONE
    if epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    # With TV2 a marker has a newer epoch than its data. So a marker with the same epoch belongs to an earlier
    # transaction, unless no transaction is open: then it is the same marker again (KAFKA-19999). The last epoch
    # cannot be bumped, so its marker has the epoch of the data.
    is_open = producer.txn_first_offset >= 0
    if transaction_version.bumps_epoch and epoch == producer.epoch and is_open and epoch != MAX_PRODUCER_EPOCH:
        return INVALID_PRODUCER_EPOCH
    if coordinator_epoch < producer.coordinator_epoch:
        return TRANSACTION_COORDINATOR_FENCED
    return NONE


class Producers:
    """All producers of one partition, and their open transactions in the order in which they began."""

    __slots__ = ("by_id", "open_txns")

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        # A transaction is added when its first batch is appended, so the first item is the oldest.
        self.open_txns: dict[int, OpenTxn] = {}

    def apply_batch(
        self,
        producer_id: int,
        epoch: int,
        sent: SentBatch,
        transactional: bool,
        first_offset: int,
        address: int,
        size_bytes: int = 0,
    ) -> None:
        """Take an appended batch of data into account."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        batches = producer.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(sent)
        producer.last_timestamp = sent.timestamp
        if transactional:
            if producer.txn_first_offset < 0:
                producer.txn_first_offset = first_offset
                producer.txn_bytes = 0
                self.open_txns[producer_id] = OpenTxn(first_offset, address)
            producer.txn_bytes += size_bytes

    def apply_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """Take an appended marker into account; return the first offset of the transaction that it ended, or -1."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        first_offset = producer.txn_first_offset
        if first_offset >= 0:
            producer.txn_first_offset = -1
            del self.open_txns[producer_id]
        return first_offset

    def oldest_txn(self) -> OpenTxn | None:
        for txn in self.open_txns.values():
            return txn
        return None

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forget the producers that were silent for too long, never one with an open transaction."""
        expired = [
            producer_id
            for producer_id, producer in self.by_id.items()
            if producer.txn_first_offset < 0 and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.by_id[producer_id]
        return expired


def encode_snapshot(producers: dict[int, Producer]) -> bytes:
    """Kafka's producer snapshot, version 1, with an entry for every batch that is kept, the last one last.

    A new leader needs them all: a producer that lost its leader sends the batches again that were under way.
    """
    # Differs: Kafka's snapshot keeps the last batch of each producer. A broker that has restarted refuses the batches
    # before it if they are sent again. Fencepost keeps five. Kafka reads such a snapshot too: of several entries of a
    # producer it takes the last.
    entries = []
    for producer_id, producer in producers.items():
        epoch, coordinator_epoch, batches = producer.epoch, producer.coordinator_epoch, producer.batches
        for sent in batches[:-1]:
            place = (sent.last_sequence, sent.last_offset, sent.offset_delta, sent.timestamp)
            entries.append(_SNAPSHOT_ENTRY.pack(producer_id, epoch, *place, coordinator_epoch, NO_TXN))
        sequence, offset, delta = -1, -1, 0
        if batches:
            sequence, offset, delta = batches[-1].last_sequence, batches[-1].last_offset, batches[-1].offset_delta
        place = (sequence, offset, delta, producer.last_timestamp)
        entries.append(_SNAPSHOT_ENTRY.pack(producer_id, epoch, *place, coordinator_epoch, producer.txn_first_offset))
    body = len(entries).to_bytes(4, "big") + b"".join(entries)
    return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(snapshot: bytes) -> dict[int, Producer]:
    """The producers of a snapshot. Raises Corrupt."""
    if len(snapshot) < _SNAPSHOT_HEAD.size:
        raise Truncated("producer snapshot", need=_SNAPSHOT_HEAD.size, have=len(snapshot), at=0)
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(snapshot)
    if version != SNAPSHOT_VERSION:
        raise Corrupt(f"producer snapshot has version {version}, expected {SNAPSHOT_VERSION}", at=0)
    actual = crc32c(snapshot[6:])
    if actual != crc:
        raise Corrupt(f"producer snapshot has crc {actual:#010x}, it says {crc:#010x}", at=2)
    need = _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size
    if need != len(snapshot):
        raise Truncated(f"producer snapshot of {count} entries", need=need, have=len(snapshot), at=6)
    producers: dict[int, Producer] = {}
    for fields in _SNAPSHOT_ENTRY.iter_unpack(snapshot[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        producer = producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = producers[producer_id] = Producer(epoch)
        if offset >= 0:
            first_sequence = (sequence - delta) & MAX_SEQUENCE if sequence >= 0 else sequence
            producer.batches.append(SentBatch(first_sequence, sequence, offset, timestamp))
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.txn_first_offset = txn_first_offset
    return producers


def open_txns_of(producers: Iterable[tuple[int, Producer]]) -> list[tuple[int, int]]:
    """(first offset, producer id) of each open transaction, the oldest first."""
    return sorted((p.txn_first_offset, producer_id) for producer_id, p in producers if p.txn_first_offset >= 0)


class Verification:
    __slots__ = ("has_ended", "waiting")

    def __init__(self) -> None:
        self.has_ended = False  # The transaction, by a marker.
        self.waiting = 0  # Requests that wait for the coordinator.


class Verifications:
    """Batches that wait until a coordinator on another node has said whether they belong to a transaction.

    Meanwhile the transaction may end. A batch that is appended after its marker would belong to no transaction and hold
    back the last stable offset for ever. So a marker of the same producer ends the verifications that wait, and their
    batches are refused. Follows Kafka's VerificationStateEntry (KIP-890).
    """

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Verification] = {}

    def begin(self, producer_id: int) -> Verification:
        found = self.by_producer.setdefault(producer_id, Verification())
        found.waiting += 1
        return found

    def end(self, producer_id: int, verification: Verification) -> bool:
        """The coordinator has answered; return whether the transaction has had no marker meanwhile."""
        verification.waiting -= 1
        if not verification.waiting and self.by_producer.get(producer_id) is verification:
            del self.by_producer[producer_id]
        return not verification.has_ended

    def txn_ended(self, producer_id: int) -> None:
        verification = self.by_producer.pop(producer_id, None)
        if verification is not None:
            verification.has_ended = True


def why_refused(error: int, producer: Producer | None, header: BatchHeader, partition: str) -> str:
    """The message for an error of `decide_batch`, with the values of both sides."""
    who = _name_of(header)
    if error == INVALID_PRODUCER_EPOCH and producer is not None:
        return f"{who} is fenced: epoch {producer.epoch} was seen"
    if error == INVALID_TXN_STATE:
        if header.is_transactional:
            return f"{who} has no open transaction on {partition}"
        return f"{who} sent a plain batch inside a transaction"
    last = -1
    if producer is not None and producer.batches and producer.epoch == header.producer_epoch:
        last = producer.batches[-1].last_sequence
    return f"{who} sent sequence {header.base_sequence}, the last one is {last}"


def repeats_earlier_txn(header: BatchHeader) -> str:
    sequences = f"sequences {header.base_sequence} to {header.last_sequence}"
    return f"{_name_of(header)} sent {sequences} in an earlier transaction"


def _name_of(header: BatchHeader) -> str:
    return f"producer {header.producer_id} with epoch {header.producer_epoch}"
