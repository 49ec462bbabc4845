"""Recognises the late Produce of transaction version 1 among aborted reads (KIP-890). Pure.

With version 1 the transactions of a producer have one producer epoch. A network may delay a Produce until its client
has aborted the transaction and is in the next one. If that one writes to the same partition, the late records become
part of it, and are committed with it. The broker does what the protocol demands.

The log proves it: the record stands behind the abort marker of its own transaction, and before the commit marker of the
later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import HistoryTxn, Index, MarkedRecords, RunOfRecord
from fencepost.verify.checkers.kinds import title_of
from fencepost.verify.checkers.late_end_txn import accused_txn
from fencepost.verify.history import Send


def name_late_produces(index: Index, anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    """The anomalies; aborted reads that late requests explain have the name of these."""
    for anomaly in anomalies:
        txn = accused_txn(index, anomaly) if anomaly.kind == "G1a" else None
        later = _joined(index, txn) if txn is not None else None
        if txn is None or later is None:
            yield anomaly
        else:
            what = (
                f"a late record of transaction {txn.number} became part of transaction {later.number} of {txn.by}, "
                f"which has the same producer epoch; {title_of(anomaly)}: {anomaly.what}"
            )
            yield Anomaly("late-Produce", what, (*anomaly.proof, *later.proof))


def _joined(index: Index, txn: HistoryTxn) -> HistoryTxn | None:
    """The transaction that the records of an aborted one became part of; None if nothing proves it for all of them."""
    if txn.init is None or txn.init.version > 1 or txn.asked is not None:
        return None
    read = [send for send in txn.sends if send.value in index.seen]
    if not all(_may_be_late(index, txn, send) for send in read):
        return None
    runs = [index.runs[send.value] for send in read]
    found = [_joined_by(index, txn, run) for run in {id(run.own): run for run in runs}.values()]
    return found[0] if found and None not in found else None


def _may_be_late(index: Index, txn: HistoryTxn, send: Send) -> bool:
    """Whether a record is in the log, with its producer, and was not acknowledged before its transaction ended."""
    fate = index.fates.get(send.value)
    ack = index.acks.get(send.value)
    is_in_time = ack is not None and (txn.ended is None or ack.at < txn.ended.at)
    return fate is not None and fate.producer_id >= 0 and not is_in_time


def _joined_by(index: Index, txn: HistoryTxn, run: RunOfRecord) -> HistoryTxn | None:
    if run.before is None or run.own.marker != "commit" or not _is_abort_of(index, txn, run.before):
        return None
    others = (index.sends[value] for value in run.own.values if value in index.sends)
    return next((later for other in others if _is_later(later := index.txn_of(other), txn)), None)


def _is_abort_of(index: Index, txn: HistoryTxn, run: MarkedRecords) -> bool:
    """Whether a marker aborted this transaction: it ended no records of another one.

    If it did, the marker of this transaction may be missing, which would be the broker's mistake.
    """
    sends = [index.sends[value] for value in run.values if value in index.sends]
    return run.marker == "abort" and all(index.txn_of(send) is txn for send in sends)


def _is_later(later: HistoryTxn | None, txn: HistoryTxn) -> bool:
    """Whether it is a later transaction of the same initialised producer, which was asked to commit."""
    return (
        later is not None
        and later.by == txn.by
        and later.init is txn.init
        and later.number > txn.number
        and (later.asked is not None)
    )
