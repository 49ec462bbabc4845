"""Recognises the late requests of transaction version 1 among other anomalies (KIP-890). Pure.

With version 1 the transactions of a producer have one producer epoch. An EndTxn that a network delayed, and that its
client has repeated meanwhile, ends the transaction that the client is in by then. A late commit makes records visible
that the client aborts later, or has not asked to commit yet, and moves a group whose outputs are not there; a late
abort takes the first records of a transaction that is committed later. The records of a late Produce become part of the
transaction that the client is in by then, if that one writes to the same partition, and are committed with it. The
broker does what the protocol demands.

The circumstances alone would excuse a broker that is broken, so this asks for proof: the log, the answer to the
transaction's own EndTxn, or, where neither can show it, a fault of the run that made an EndTxn late at this time. An
EndTxn that comes late was given up by its client, which has repeated it: the end of its transaction took long. The log
proves a late Produce: the record stands behind the abort marker of its own transaction, and before the commit marker of
the later one.

Only a request that was delayed for longer than its client waits can be late. A request that is dropped, or that a tap
answers with an error, never arrives. One that is doubled arrives twice on its connection, both before the client's next
request. A reply that is delayed belongs to a request that has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.faults.fault import DELAY, REQUEST, BadFault, parse_line
from fencepost.verify.checkers.index import HistoryTxn, Index, MarkedRecords, RunOfRecord, Where
from fencepost.verify.checkers.kinds import Anomaly, title_of
from fencepost.verify.history import CLIENT_PATIENCE_MS, Fault, Send, SendOffsets, TxnOutcome


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


# The answers to an EndTxn or Produce whose transaction was ended by another EndTxn: Kafka's, and what librdkafka makes
# of them.
REFUSED = {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "_FATAL", "_STATE"}
# What a late EndTxn can lead to: records that must not be read, records that are missing, and groups that are ahead.
READ = {"G1a", "precommitted-read"}
MISSING = {"torn-transaction", "lost-write"}
AHEAD = {"offsets-ahead"}


def name_late_end_txns(index: Index, anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    """The anomalies; those that a late EndTxn explains have its name, once for each transaction."""
    named: set[tuple[str, int]] = set()
    slow, delay_ns = slow_ends(index), longest_delay_ns(index.faults)
    for anomaly in anomalies:
        txn = accused_txn(index, anomaly) if anomaly.kind in READ | MISSING | AHEAD else None
        ended_by = _late_end(index, anomaly.kind, txn, slow[txn.by, txn.number], delay_ns) if txn is not None else None
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
    """The transaction of the first record in the proof, or of the first offsets."""
    sent = next((event for event in anomaly.proof if isinstance(event, Send | SendOffsets)), None)
    return index.txn_of(sent) if sent is not None else None


def _late_end(index: Index, kind: str, txn: HistoryTxn, slow: SlowEnds, delay_ns: int) -> tuple[HistoryTxn, str] | None:
    """The transaction whose late EndTxn ended this one, and how; None if nothing proves that there was one."""
    if txn.init is None or txn.init.version > 1:
        return None
    if slow.commit is not None:
        before = slow.commit.txn
        if kind in READ and _does_commit_explain_reads(index, txn, _may_come_late(before, txn, delay_ns)):
            return before, "commit"
        if kind in MISSING and _does_commit_explain_missing(index, txn):
            return before, "commit"
        if kind in AHEAD and _does_commit_explain_offsets(index, txn, _may_come_late(before, txn, delay_ns)):
            return before, "commit"
    if slow.abort is not None and kind in MISSING and _does_abort_explain_missing(index, txn):
        return slow.abort.txn, "abort"
    return None


def _may_come_late(before: HistoryTxn, txn: HistoryTxn, delay_ns: int) -> bool:
    """Whether a fault of the run can have held the end of one transaction back until another one was open.

    The client has repeated the request, so its answer took longer than the client waits.
    """
    began = txn.begun or next(iter(txn.sends), None)
    if not delay_ns or before.ended is None or began is None:
        return False
    return end_took_ns(before) >= PATIENCE_NS and began.at <= before.ended.at + delay_ns


# --- a late commit ----------------------------------------------------------------------------------------------


def _does_commit_explain_reads(index: Index, txn: HistoryTxn, may_come_late: bool) -> bool:
    """Whether a commit that the transaction had not asked for ended the records that readers got too early."""
    is_refused = txn.error in REFUSED
    read = _read_too_early(index, txn)
    if not _does_log_tell(index, read):
        return is_refused
    if not all(_is_committed_before_its_read(index, send) for send in read):
        return False
    if is_refused:
        return True
    if txn.asked is not None and txn.outcome is not TxnOutcome.ABORTED:
        # The marker may be the one that the transaction asked for later.
        behind = _first_behind_a_commit(index, txn)
        return may_come_late or (behind is not None and read[-1].at < behind.at)
    if _is_ended_in_two_parts(index, txn, "commit", "abort"):
        return True
    if txn.ended is None or txn.error:
        return may_come_late  # No answer says that the client's own request did anything.
    # A broker that writes the wrong markers answers the client's own abort with success. So does one that was sent
    # offsets after the late commit, and has nothing else to abort.
    asked_at = txn.ends[0].at if txn.ends else txn.ended.at
    is_marked_before = not any(_is_marker_written_after(index, send, asked_at) for send in read)
    return may_come_late and bool(txn.offsets) and is_marked_before


def _read_too_early(index: Index, txn: HistoryTxn) -> list[Send]:
    """The records that read_committed readers got before the transaction was asked to commit, or though it aborted."""
    asked = txn.asked if txn.outcome is not TxnOutcome.ABORTED else None
    read = [send for send in txn.sends if send.value in index.seen]
    return [send for send in read if asked is None or index.seen[send.value][0].at < asked.at]


def _does_log_tell(index: Index, read: list[Send]) -> bool:
    """Whether the history has the logs of these records, with their producers."""
    polls = [index.seen[send.value][0] for send in read]
    known = [index.fates[send.value] for send in read if send.value in index.fates]
    return all((poll.topic, poll.partition) in index.logs for poll in polls) and all(
        fate.producer_id >= 0 for fate in known
    )


def _is_committed_before_its_read(index: Index, send: Send) -> bool:
    """Whether the log has a commit of the record, and nothing shows that it was written after the first read."""
    fate = index.fates.get(send.value)
    is_committed = fate is not None and fate.own_marker == "commit"
    return is_committed and not _is_marker_written_after(index, send, index.seen[send.value][0].at)


def _is_marker_written_after(index: Index, send: Send, at: int) -> bool:
    fate = index.fates[send.value]
    return index.is_written_after(fate.where, fate.marker_offset, at)


def _first_behind_a_commit(index: Index, txn: HistoryTxn) -> Send | None:
    """The first record that stands behind a commit marker of records of its own transaction, in the same partition."""
    committed: dict[Where, int] = {}
    for send in txn.sends:
        fate = index.fates.get(send.value)
        if fate is None:
            continue
        if fate.offset > committed.get(fate.where, fate.offset):
            return send
        if fate.own_marker == "commit":
            committed.setdefault(fate.where, fate.marker_offset)
    return None


def _does_commit_explain_missing(index: Index, txn: HistoryTxn) -> bool:
    """Whether a commit stands among the records, and all that are missing were sent after it, and aborted later."""
    behind = _first_behind_a_commit(index, txn)
    missing = [send for send in txn.sends if index.is_missing(send)]
    fates = [index.fates.get(send.value) for send in missing]
    is_aborted = all(fate is not None and fate.marker == "abort" for fate in fates)
    return behind is not None and is_aborted and all(send.at >= behind.at for send in missing)


def _does_commit_explain_offsets(index: Index, txn: HistoryTxn, may_come_late: bool) -> bool:
    """Whether a commit that the transaction had not asked for moved its group.

    No log of a history has offsets. So the transaction's own requests must have been refused, and its records or a
    fault of the run must show the commit.
    """
    if not txn.offsets:
        return False
    if txn.asked is not None and txn.outcome is not TxnOutcome.ABORTED:
        return may_come_late  # Kafka answers the transaction's own commit with success.
    fates = [index.fates[send.value] for send in txn.sends if send.value in index.fates]
    return txn.error in REFUSED and (may_come_late or any(fate.own_marker == "commit" for fate in fates))


# --- a late abort -----------------------------------------------------------------------------------------------


def _does_abort_explain_missing(index: Index, txn: HistoryTxn) -> bool:
    """Whether an abort took the records that were sent first, and the transaction's own commit the others.

    If no record is committed, the transaction's own commit would have been refused. A late abort takes no record from
    the log.
    """
    if txn.asked is None or txn.outcome is TxnOutcome.ABORTED:
        return False
    missing = [index.fates.get(send.value) for send in txn.sends if index.is_missing(send)]
    is_aborted = all(fate is not None and fate.own_marker == "abort" for fate in missing)
    return is_aborted and _is_ended_in_two_parts(index, txn, "abort", "commit")


def _is_ended_in_two_parts(index: Index, txn: HistoryTxn, first: str, then: str) -> bool:
    """Whether markers of one kind ended the records that were sent first, and markers of another kind the others.

    If a record of the others was acknowledged before these markers were written, the same EndTxn would have ended it.
    """
    ended = [send for send in txn.sends if send.value in index.fates and index.fates[send.value].own_marker]
    markers = [index.fates[send.value].marker for send in ended]
    count = markers.count(first)
    if not 0 < count < len(markers) or markers != [first] * count + [then] * (len(markers) - count):
        return False
    ack = index.acks.get(ended[count].value)
    return ack is None or not any(_is_marker_written_after(index, send, ack.at) for send in ended[:count])


class SlowEnd(NamedTuple):
    """Of several transactions whose ends took about as long, the last one: the requests of the others have arrived."""

    txn: HistoryTxn
    longest_ns: int


class SlowEnds(NamedTuple):
    """Those of one producer epoch, as far as the log tells it."""

    producer: tuple[int, int] | None = None
    commit: SlowEnd | None = None
    abort: SlowEnd | None = None


def slow_ends(index: Index) -> dict[tuple[str, int], SlowEnds]:
    """For each transaction, the slow ends before it."""
    found: dict[tuple[str, int], SlowEnds] = {}
    for txn in index.txns.values():
        before = txn.before
        known = _with(found[before.by, before.number], before) if before is not None else SlowEnds()
        producer = _producer_of(index, txn) or known.producer
        is_same = known.producer in (None, producer)
        found[txn.by, txn.number] = known._replace(producer=producer) if is_same else SlowEnds(producer)
    return found


def end_took_ns(txn: HistoryTxn) -> int:
    return txn.ended.at - txn.ends[0].at if txn.ended is not None and txn.ends else 0


def _with(known: SlowEnds, txn: HistoryTxn) -> SlowEnds:
    asked = {end.commit for end in txn.ends}
    return SlowEnds(
        known.producer,
        _slower(known.commit, txn) if True in asked else known.commit,
        _slower(known.abort, txn) if False in asked else known.abort,
    )


def _slower(known: SlowEnd | None, txn: HistoryTxn) -> SlowEnd:
    took_ns = end_took_ns(txn)
    longest_ns = max(took_ns, known.longest_ns if known is not None else 0)
    return SlowEnd(txn if known is None or took_ns * 2 >= longest_ns else known.txn, longest_ns)


def _producer_of(index: Index, txn: HistoryTxn) -> tuple[int, int] | None:
    fates = (index.fates[send.value] for send in txn.sends if send.value in index.fates)
    return next(((fate.producer_id, fate.epoch) for fate in fates if fate.producer_id >= 0), None)


END_TXN = 26  # Its API key.
PATIENCE_NS = CLIENT_PATIENCE_MS * 1_000_000


def longest_delay_ns(faults: Iterable[Fault]) -> int:
    """For how long an EndTxn was held back at most; 0 if no client has given one up because of that."""
    longest_ms = max((_delay_ms(fault.what) for fault in faults), default=0)
    return longest_ms * 1_000_000 if longest_ms >= CLIENT_PATIENCE_MS else 0


def _delay_ms(what: str) -> int:
    """Of a fault in the words of `fencepost tap`, such as `delay EndTxn 4s request (2 times)`."""
    words, _, _ = what.partition(" (")
    try:
        fault = parse_line(words)
    except BadFault:
        return 0  # Another kind of fault, such as `paused writer-0`.
    is_of_end_txn = fault.api_key in (None, END_TXN)
    return fault.delay_ms if fault.action == DELAY and fault.at == REQUEST and is_of_end_txn else 0
