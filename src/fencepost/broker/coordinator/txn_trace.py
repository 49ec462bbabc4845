"""The steps of transactions as events: `broker --log txn` prints them.

The coordinator is pure and does not log. It calls a `Trace`, if there is one, with a `TxnEvent` for everything that
happens to a transactional id. Most events follow from a record: `events_of` compares it with the record before.
Without a `Trace` no event is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from fencepost.counting import counted
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.states import DEAD, EMPTY, ONGOING, PREPARE_COMMIT, PREPARED, Txn
from fencepost.protocol import errors

UNKNOWN_ID = ""  # A marker of a tool, or of an orphan, names only the producer id.


class TxnEventKind(Enum):
    INIT = "init"
    BEGIN = "begin"
    ADD = "add"
    DECIDE = "decide"
    MARKER = "marker"
    COMPLETE = "complete"
    FENCE = "fence"
    TIMEOUT = "timeout"
    EXPIRE = "expire"


class TxnEvent(NamedTuple):
    kind: TxnEventKind
    transactional_id: str
    producer_id: int
    producer_epoch: int
    about: str = ""


Trace = Callable[[TxnEvent], None]


def events_of(before: Txn | None, after: Txn) -> Iterator[TxnEvent]:
    """What the record `after` means, if `before` was the last record of its transactional id."""
    if after.state is EMPTY:
        yield _event(TxnEventKind.INIT, after, f"timeout {after.timeout_ms} ms")
        if before is not None:
            about = f"epoch {after.producer_epoch} of producer {after.producer_id} takes over: this one is fenced"
            yield _event(TxnEventKind.FENCE, before, about)
    elif after.state is ONGOING:
        is_new = before is None or before.state is not ONGOING
        known = frozenset() if before is None or is_new else before.partitions
        if is_new:
            yield _event(TxnEventKind.BEGIN, after)
        for topic, index in sorted(after.partitions - known):
            yield _event(TxnEventKind.ADD, after, f"{topic}-{index}")
    elif after.state in PREPARED:
        about = f"{_outcome(after)}, {counted(len(after.partitions), 'partition')} ({after.state.kafka_name})"
        yield _event(TxnEventKind.DECIDE, after, about)
    elif after.state is DEAD:
        yield _event(TxnEventKind.EXPIRE, after, "the id was idle for too long and is forgotten")
    else:
        about = f"{after.state.kafka_name}, {after.updated_ms - after.start_ms} ms after the begin"
        yield _event(TxnEventKind.COMPLETE, after, about)


def timed_out(txn: Txn, now_ms: int) -> TxnEvent:
    about = f"open for {now_ms - txn.start_ms} ms, the timeout is {txn.timeout_ms} ms: aborted"
    return _event(TxnEventKind.TIMEOUT, txn, about)


def aborted_for_another(txn: Txn) -> TxnEvent:
    """A new producer came while a transaction was open."""
    return _event(TxnEventKind.FENCE, txn, "another producer took the id: the open transaction is aborted")


def refused(transactional_id: str, producer_id: int, epoch: int, error: int, txn: Txn | None) -> TxnEvent:
    """A request came from a producer that was replaced."""
    now = "" if txn is None else f", the id has producer {txn.producer_id} and epoch {txn.producer_epoch}"
    about = f"a request was refused with {errors.name_of(error)}{now}"
    return TxnEvent(TxnEventKind.FENCE, transactional_id, producer_id, epoch, about)


def marked(
    transactional_id: str, partition: Partition, producer_id: int, epoch: int, commit: bool, error: int
) -> TxnEvent:
    """A marker was written to the partition as its last record, or could not be."""
    what = f"{'COMMIT' if commit else 'ABORT'} on {partition.topic}-{partition.index}"
    end = f"at offset {partition.high_watermark - 1}" if not error else f"not written: {errors.name_of(error)}"
    return TxnEvent(TxnEventKind.MARKER, transactional_id, producer_id, epoch, f"{what} {end}")


def _outcome(prepared: Txn) -> str:
    return "COMMIT" if prepared.state is PREPARE_COMMIT else "ABORT"


def _event(kind: TxnEventKind, txn: Txn, about: str = "") -> TxnEvent:
    return TxnEvent(kind, txn.transactional_id, txn.producer_id, txn.producer_epoch, about)
