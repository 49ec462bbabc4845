"""Cuts the records of a transactional id into rounds. A round is one transaction, from its first record to its end.

The registrations just before and just after a transaction belong to its round, too: they show which producer began it,
and which one fenced it. So a registration between two transactions is in both rounds. The producers that registered the
id are its owners; the record batches and the marker of a round are in the logs of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.history import Transition, is_fenced_by_order, next_decision, transitions_of
from fencepost.diagnose.snapshot import LogEntry
from fencepost.machines.group.offsets import OffsetRecord
from fencepost.machines.txn.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, PREPARED, Txn
from fencepost.protocol.batch import BatchHeader, Marker


class RoundOutcome(Enum):
    REGISTERED = "no transaction has begun"
    OPEN = "open"
    COMMITTING = "commit decided"
    ABORTING = "abort decided"
    COMMITTED = "committed"
    ABORTED = "aborted"
    REMOVED = "the id was removed"


class Recorded(NamedTuple):
    """One record with its cause, and the records that show the cause."""

    entry: LogEntry
    transition: Transition
    # The record before it, and the next one that a client or a timeout caused; None if the log does not have them.
    before: Txn | None
    after: Txn | None

    @property
    def txn(self) -> Txn | None:
        return self.entry.txn


@dataclass(frozen=True, slots=True)
class Round:
    records: tuple[Recorded, ...]
    # Whether a later round exists.
    is_last: bool

    @property
    def began(self) -> Txn | None:
        """Its first record with an open transaction."""
        return next((r.txn for r in self.records if r.txn is not None and r.txn.state is ONGOING), None)

    @property
    def key(self) -> int:
        """The offset of the record with which it began: its name in addresses."""
        began = self.began
        return next((r.entry.offset for r in self.records if r.txn is began), self.records[0].entry.offset)

    @property
    def prepared(self) -> Txn | None:
        """The decision."""
        return next((r.txn for r in self.records if r.txn is not None and r.txn.state in PREPARED), None)

    @property
    def completed(self) -> Txn | None:
        ended = (COMPLETE_COMMIT, COMPLETE_ABORT)
        return next((r.txn for r in self.records if r.txn is not None and r.txn.state in ended), None)

    @property
    def partitions(self) -> tuple[NamedPartition, ...]:
        # The later records of a round may name fewer partitions: those that still lack a marker.
        named = {NamedPartition(*p) for r in self.records if r.txn is not None for p in r.txn.partitions}
        return tuple(sorted(named))

    @property
    def first_ms(self) -> int:
        began = self.began
        return began.start_ms if began is not None and began.start_ms >= 0 else self.records[0].transition.at_ms

    @property
    def last_ms(self) -> int:
        return self.records[-1].transition.at_ms

    @property
    def outcome(self) -> RoundOutcome:
        if self.completed is not None:
            return RoundOutcome.COMMITTED if self.completed.state is COMPLETE_COMMIT else RoundOutcome.ABORTED
        if self.prepared is not None:
            return RoundOutcome.COMMITTING if self.prepared.state is PREPARE_COMMIT else RoundOutcome.ABORTING
        if self.began is not None:
            return RoundOutcome.OPEN
        return RoundOutcome.REMOVED if self.records[-1].txn is None else RoundOutcome.REGISTERED


def rounds_of(entries: Sequence[LogEntry]) -> tuple[Round, ...]:
    """The rounds of an id, oldest first, given its records in the order of the log."""
    txns = [entry.txn for entry in entries]
    records = [
        Recorded(entry, transition, txns[n - 1] if n else None, next_decision(txns[n + 1 :]))
        for n, (entry, transition) in enumerate(zip(entries, transitions_of(entries), strict=True))
    ]
    starts = [n for n in range(len(records)) if _begins(records, n)]
    spans = []
    for start, end in pairwise([*starts, len(records)]):
        lead = start
        while lead > 0 and _is_registration(records[lead - 1]):
            lead -= 1
        spans.append((lead, end))
    # What compaction has left of an earlier transaction; or everything, if no transaction has begun.
    first = spans[0][0] if spans else len(records)
    if first > 0:
        spans.insert(0, (0, starts[0] if starts else first))
    return tuple(Round(tuple(records[lead:end]), end == len(records)) for lead, end in spans)


def choose(rounds: Sequence[Round], key: int | None) -> Round | None:
    """The round with this key; the last one without a key, or if compaction has removed it."""
    found = next((round_ for round_ in rounds if round_.key == key), None)
    return found or (rounds[-1] if rounds else None)


def _begins(records: Sequence[Recorded], n: int) -> bool:
    txn, before = records[n].txn, records[n].before
    return txn is not None and txn.state is ONGOING and (before is None or before.state is not ONGOING)


def _is_registration(record: Recorded) -> bool:
    return record.txn is not None and record.txn.state is EMPTY


class Owner(NamedTuple):
    """A producer, or an operator who fenced one: it has the epochs from this one up to that of the next owner."""

    key: str
    producer_id: int
    first_epoch: int
    is_operator: bool = False


def owners_of(entries: Sequence[LogEntry]) -> tuple[Owner, ...]:
    """The owners in the order of their registrations, as far as the log still shows them."""
    found: list[Owner] = []
    before: Txn | None = None
    for txn in (entry.txn for entry in entries):
        if txn is not None and (not found or _is_new(before, txn)):
            key = f"producer {txn.producer_id}/{txn.producer_epoch}"
            found.append(Owner(key, txn.producer_id, txn.producer_epoch, is_fenced_by_order(before, txn)))
        elif txn is not None and txn.producer_id != found[-1].producer_id:
            # The epochs of its producer id were used up: the same producer has another id.
            found.append(found[-1]._replace(producer_id=txn.producer_id, first_epoch=txn.producer_epoch))
        before = txn
    return tuple(found)


def _is_new(before: Txn | None, txn: Txn) -> bool:
    if txn.state is not EMPTY or before is None:
        return txn.state is EMPTY
    return (txn.producer_id, txn.producer_epoch) != (before.producer_id, before.producer_epoch)


def owner_with(owners: Sequence[Owner], producer_id: int, producer_epoch: int) -> Owner | None:
    """The owner that this id and epoch were given to; None if the log no longer shows it."""
    for owner in reversed(owners):
        if owner.producer_id == producer_id and owner.first_epoch <= producer_epoch:
            return owner
    return None


class SeenBatch(NamedTuple):
    header: BatchHeader
    # Only a control batch that ends a transaction has one.
    marker: Marker | None = None
    # The offsets of consumer groups in it, if it is from `__consumer_offsets`.
    offsets: tuple[OffsetRecord, ...] = ()


class RoundBatches(NamedTuple):
    data: tuple[SeenBatch, ...] = ()
    marker: SeenBatch | None = None


def batches_of(round_: Round, batches: Sequence[SeenBatch], open_from: int | None, lacks_marker: bool) -> RoundBatches:
    """Those of `batches`, in the order of the log, that the transaction of the round wrote.

    `open_from` is the offset of its first record if the transaction is open on the partition. `lacks_marker` says that
    its coordinator still has to write the marker.
    """
    began = round_.began or round_.prepared
    if began is None:
        return RoundBatches()
    mine = [batch for batch in batches if batch.header.producer_id == began.producer_id]
    marker = None if open_from is not None or lacks_marker else _marker(round_, mine)
    if marker is None:
        if open_from is None:
            return RoundBatches()
        return RoundBatches(tuple(b for b in mine if _is_data(b) and b.header.base_offset >= open_from))
    at = mine.index(marker)
    first = next((n + 1 for n in reversed(range(at)) if mine[n].marker is not None), 0)
    return RoundBatches(tuple(b for b in mine[first:at] if _is_data(b)), marker)


def _is_data(batch: SeenBatch) -> bool:
    return batch.header.is_transactional and not batch.header.is_control


def _marker(round_: Round, mine: Sequence[SeenBatch]) -> SeenBatch | None:
    """The marker of the round's decision.

    It has the epoch of the decision. With TV1 the markers of several rounds may have the same epoch, and that of this
    round is the nearest in time.
    """
    prepared = round_.prepared
    if prepared is None:
        return None
    found = [
        (abs(batch.marker.timestamp - prepared.updated_ms), n)
        for n, batch in enumerate(mine)
        if batch.marker is not None
        and batch.marker.commit is (prepared.state is PREPARE_COMMIT)
        and batch.marker.producer_epoch == prepared.producer_epoch
    ]
    return mine[min(found)[1]] if found else None
