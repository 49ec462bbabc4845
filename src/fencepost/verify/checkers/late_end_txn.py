"""Recognises the late EndTxn of transaction version 1 among other anomalies (KIP-890). Pure.

With version 1 the transactions of a producer have one producer epoch. An EndTxn that a network delayed, and that its
client has repeated meanwhile, ends the transaction that the client is in by then. A late commit makes records visible
that the client aborts later, or has not asked to commit yet; a late abort takes the first records of a transaction that
is committed later. The broker does what the protocol demands.

The circumstances alone would excuse a broker that is broken, so this asks for proof: the log, or the answer to the
transaction's own EndTxn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import HistoryTxn, Index
from fencepost.verify.checkers.kinds import title_of
from fencepost.verify.history import Send, TxnOutcome

# The answers to an EndTxn or Produce whose transaction was ended by another EndTxn: Kafka's, and what librdkafka makes
# of them.
REFUSED = {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "_FATAL", "_STATE"}
# The answer if another client has taken over meanwhile. It says as well that the client's own request did nothing.
FENCED = "PRODUCER_FENCED"
EXCUSED = {"G1a", "precommitted-read", "torn-transaction", "lost-write"}


def name_late_end_txns(index: Index, anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    """The anomalies; those that a late EndTxn explains have its name, once for each transaction."""
    named: set[tuple[str, int]] = set()
    for anomaly in anomalies:
        txn = accused_txn(index, anomaly) if anomaly.kind in EXCUSED else None
        ended_by = _late_end(index, txn) if txn is not None else None
        if txn is None or ended_by is None:
            yield anomaly
        elif (txn.by, txn.number) not in named:
            named.add((txn.by, txn.number))
            before, word = ended_by
            what = (
                f"a late {word} of transaction {before.number} ended transaction {txn.number} of {txn.by}, which has "
            )
            proof = (*((txn.init,) if txn.init is not None else ()), *before.proof, *anomaly.proof)
            yield Anomaly("late-EndTxn", f"{what}the same producer epoch; {title_of(anomaly)}: {anomaly.what}", proof)


def accused_txn(index: Index, anomaly: Anomaly) -> HistoryTxn | None:
    """The transaction of the first record in the proof."""
    send = next((event for event in anomaly.proof if isinstance(event, Send)), None)
    return index.txn_of(send) if send is not None else None


def _late_end(index: Index, txn: HistoryTxn) -> tuple[HistoryTxn, str] | None:
    """The transaction whose late EndTxn ended this one, and how; None if nothing proves that there was one."""
    if txn.init is None or txn.init.version > 1:
        return None
    if (before := _slowest_end(txn, commit=True)) is not None and _ended_by_commit(index, txn):
        return before, "commit"
    if (before := _slowest_end(txn, commit=False)) is not None and _ended_by_abort(index, txn):
        return before, "abort"
    return None


def _slowest_end(txn: HistoryTxn, commit: bool) -> HistoryTxn | None:
    """An earlier transaction of the same producer whose commit, or abort, took longest: its client has repeated it.

    Of several that took about as long, the last one: the others have arrived before.
    """
    found = []
    before = txn.before
    while before is not None:
        if any(end.commit == commit for end in before.ends):
            found.append(before)
        before = before.before
    longest = max(map(_end_took, found), default=0.0)
    return next((each for each in found if _end_took(each) * 2 >= longest), None)


def _end_took(txn: HistoryTxn) -> float:
    return txn.ended.at - txn.ends[0].at if txn.ended is not None else 0.0


def _ended_by_commit(index: Index, txn: HistoryTxn) -> bool:
    """Whether the markers committed records that the transaction had not asked to commit, and its own end shows it."""
    markers = _markers(index, txn)
    if markers is None:
        return txn.error in REFUSED
    if "commit" not in markers:
        return False
    if txn.asked is None or txn.outcome is TxnOutcome.ABORTED:
        # A broker that writes the wrong markers answers the client's own request with success.
        was_fenced = txn.error == FENCED and _was_end_txn_disturbed(index, txn)
        return txn.error in REFUSED or was_fenced or txn.ended is None or "abort" in markers
    # The marker may be the one that the transaction asked for later.
    return _has_marker_inside(index, txn) or _was_end_txn_disturbed(index, txn)


def _has_marker_inside(index: Index, txn: HistoryTxn) -> bool:
    """Whether a marker of the transaction's epoch stands between two of its records in a partition."""
    fates = [index.fates[send.value] for send in txn.sends if send.value in index.fates]
    for where in {fate.where for fate in fates}:
        offsets = [fate.offset for fate in fates if fate.where == where]
        producer = fates[0].producer_id, fates[0].epoch
        for offset, kind, _, producer_id, epoch in index.entries(where):
            if kind != "data" and (producer_id, epoch) == producer and min(offsets) < offset < max(offsets):
                return True
    return False


def _was_end_txn_disturbed(index: Index, txn: HistoryTxn) -> bool:
    """Whether EndTxn was disturbed on purpose: at some time before, or during the whole run as the header says."""
    last = max((end.at for end in txn.ends), default=0)
    by_header = "EndTxn" in str(index.header.what.get("faults", ""))
    return by_header or any("EndTxn" in fault.what and fault.at <= last for fault in index.faults)


def _ended_by_abort(index: Index, txn: HistoryTxn) -> bool:
    """Whether an abort took the records that were sent first, and the transaction's own commit the others."""
    markers = _markers(index, txn)
    if markers is None or txn.asked is None or txn.outcome is TxnOutcome.ABORTED:
        return False
    aborted = markers.count("abort")
    # If no record is committed, the transaction's own commit would have been refused.
    return 0 < aborted < len(markers) and markers == ["abort"] * aborted + ["commit"] * (len(markers) - aborted)


def _markers(index: Index, txn: HistoryTxn) -> list[str] | None:
    """The markers behind the records of a transaction, in the order of its sends; None if the log does not tell.

    Only markers of the epoch of the records count: a newer epoch is that of another producer, or of a timeout.
    """
    fates = [index.fates[send.value] for send in txn.sends if send.value in index.fates]
    if not fates or any(fate.producer_id < 0 for fate in fates):
        return None
    return [fate.marker for fate in fates if fate.marker and fate.marker_epoch == fate.epoch]
