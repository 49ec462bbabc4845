"""Cuts the records of a transactional id into rounds. A round is one transaction, from its first record to its end.

The registrations just before and just after a transaction belong to its round, too: they show which producer began it,
and which one fenced it. So a registration between two transactions is in both rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.history import Transition, next_decision, transitions_of
from fencepost.diagnose.snapshot import LogEntry
from fencepost.machines.txn.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, PREPARED, Txn


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
