"""Records that are lost, torn, doubled, invented, or read although they must not be. Pure.

A transaction whose outcome is unknown may be visible or not; it is accused only if a part of it is visible, or if it
was visible and is not any more. Records that no event of the history sent are only accused of being invented, and only
in topics that the history has other sends to. Topics that do not keep every record must still have some of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fencepost.verify.checkers.index import HistoryTxn, Index, Place, Where
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Event, Poll, Send, TxnOutcome

SHOWN_RECORDS = 5


def check_lost(index: Index) -> Iterator[Anomaly]:
    """Records that the broker confirmed, or that a reader got, and that are not there at rest."""
    for txn in index.txns.values():
        missing = [send for send in txn.sends if index.is_missing(send)]
        # If others of its records are there, it is torn, which is another checker's.
        if missing and txn.outcome is TxnOutcome.COMMITTED and not _is_there(index, txn):
            what = f"no record of {txn} is there at rest: {_values(missing)}"
            yield Anomaly("lost-write", what, _proof(index, txn, missing))
    for send in index.sends.values():
        ack = index.acks.get(send.value) if send.txn is None else None
        if ack is not None and index.is_binding(ack) and index.is_missing(send):
            place = index.places.get(send.value, (ack.topic, ack.partition, ack.offset))
            what = f"{send.value} was acknowledged at {_place(place)}, and is missing at rest"
            yield Anomaly("lost-write", what, (send, ack, *_rest(index)))
    yield from _vanished(index)


def _vanished(index: Index) -> Iterator[Anomaly]:
    for value, (poll, offset) in index.seen.items():
        send = index.sends.get(value)
        if send is None or index.outcome_of(value) is not TxnOutcome.UNKNOWN or not index.is_missing(send):
            continue
        txn = index.txn_of(send)
        if txn is None or not _is_there(index, txn):
            of = f" of {txn}" if txn is not None else ""
            what = f"{value}{of} was read at {_place((poll.topic, poll.partition, offset))}, and is missing at rest"
            yield Anomaly("lost-write", what, (send, poll, *_rest(index)))


def _is_there(index: Index, txn: HistoryTxn) -> bool:
    return any(send.value in index.visible_at_rest for send in txn.sends)


def check_torn(index: Index) -> Iterator[Anomaly]:
    """Transactions of which some records are there, and others are missing for ever."""
    for txn in index.txns.values():
        # What was never asked to commit must not be visible at all, which is another checker's.
        if txn.outcome is not TxnOutcome.COMMITTED and (txn.outcome is not TxnOutcome.UNKNOWN or txn.asked is None):
            continue
        missing = [send for send in txn.sends if index.is_missing(send)]
        there = [send for send in txn.sends if send.value in index.visible_at_rest]
        if missing and there:
            what = f"{txn}: {_values(there)} can be read at rest, {_values(missing)} cannot"
            yield Anomaly("torn-transaction", what, _proof(index, txn, [*missing, *there]))


def check_aborted_reads(index: Index) -> Iterator[Anomaly]:
    """G1a: records of aborted transactions that a read_committed reader got."""
    for txn in index.txns.values():
        if txn.outcome is TxnOutcome.ABORTED:
            read = [send for send in txn.sends if send.value in index.seen]
            if read:
                what = f"{txn}: a read_committed reader got {_values(read)}"
                yield Anomaly("G1a", what, _proof(index, txn, read))


def check_precommitted_reads(index: Index) -> Iterator[Anomaly]:
    """Records that a read_committed reader got before their transaction was asked to commit, or without it."""
    for txn in index.txns.values():
        asked = txn.asked
        if txn.outcome is TxnOutcome.ABORTED or (txn.outcome is TxnOutcome.COMMITTED and asked is None):
            continue
        early = [
            send
            for send in txn.sends
            if (found := index.seen.get(send.value)) is not None and (asked is None or found[0].at < asked.at)
        ]
        if early:
            when = "without a request to commit it" if asked is None else "before it was asked to commit"
            what = f"{txn}: a read_committed reader got {_values(early)} {when}"
            yield Anomaly("precommitted-read", what, _proof(index, txn, early))


def check_duplicates(index: Index) -> Iterator[Anomaly]:
    """Records that are at two places, and inputs whose outputs are in two transactions."""
    found: dict[str, tuple[Place, Poll]] = {}
    accused: set[tuple[str, Place]] = set()
    for poll in index.committed_polls:
        topic, partition = poll.topic, poll.partition
        for offset, value in poll.records:
            place = (topic, partition, offset)
            first, first_poll = found.setdefault(value, (place, poll))
            if first != place and value in index.sends and (value, place) not in accused:
                accused.add((value, place))
                what = f"{value} is at {_place(first)} and at {_place(place)}"
                yield Anomaly("duplicate", what, (index.sends[value], first_poll, poll))
    yield from _inputs_twice(index)


def _inputs_twice(index: Index) -> Iterator[Anomaly]:
    # By topic of the output too: several groups may read the same input.
    done: dict[tuple[str, str, int, int], Send] = {}
    for value, (poll, _) in index.seen.items():
        send = index.sends.get(value)
        if send is None or send.source is None or send.txn is None or index.outcome_of(value) is TxnOutcome.ABORTED:
            continue
        topic, partition, offset = send.source
        first = done.setdefault((send.topic, topic, partition, offset), send)
        if (first.by, first.txn) != (send.by, send.txn):
            what = f"the input at {_place((topic, partition, offset))} has the outputs {first.value} and {value}"
            yield Anomaly("duplicate", what, (first, index.seen[first.value][0], send, poll))


def check_invented(index: Index) -> Iterator[Anomaly]:
    """Records that no writer sent, or that are in another partition than the one that they were sent to."""
    topics = {send.topic for send in index.sends.values()}
    accused: set[tuple[str, str, int]] = set()
    for readings in index.readings.values():
        for poll in readings:
            if not isinstance(poll, Poll) or poll.topic not in topics:
                continue
            for offset, value in poll.records:
                send = index.sends.get(value)
                place = (value, poll.topic, poll.partition)
                if (send is not None and _is_at_home(send, poll)) or place in accused:
                    continue
                accused.add(place)
                where = _place((poll.topic, poll.partition, offset))
                if send is None:
                    yield Anomaly("invented", f"{value} at {where} was sent by no writer of this run", (poll,))
                else:
                    meant = f"{send.topic}" if send.partition < 0 else f"{send.topic}-{send.partition}"
                    yield Anomaly("invented", f"{value} at {where} was sent to {meant}", (send, poll))


def _is_at_home(send: Send, poll: Poll) -> bool:
    return send.topic == poll.topic and send.partition in (-1, poll.partition)


# --- words and proofs -----------------------------------------------------------------------------------------


def _values(sends: list[Send]) -> str:
    shown = ", ".join(send.value for send in sends[:SHOWN_RECORDS])
    return shown if len(sends) <= SHOWN_RECORDS else f"{shown} and {len(sends) - SHOWN_RECORDS} more"


def _place(place: Place) -> str:
    topic, partition, offset = place
    return f"{topic}-{partition} offset {offset}"


def _rest(index: Index) -> tuple[Event, ...]:
    return (index.rest,) if index.rest is not None else ()


def _proof(index: Index, txn: HistoryTxn, sends: list[Send]) -> tuple[Event, ...]:
    """How the transaction began and ended, some of its records, and the first reads of them."""
    shown = sends[:SHOWN_RECORDS]
    acks = [index.acks[send.value] for send in shown if send.value in index.acks]
    reads = {id(index.seen[send.value][0]): index.seen[send.value][0] for send in shown if send.value in index.seen}
    return (*txn.proof, *shown, *acks, *reads.values(), *_rest(index))


COMPACT, DELETE = "compact", "delete"


def check_compacted(index: Index) -> Iterator[Anomaly]:
    """Compacted topics without the newest committed record of a key, or a newer one."""
    left: dict[tuple[Where, str | None], list[Send]] = defaultdict(list)
    for where, send in _visible(index, COMPACT):
        left[where, send.key].append(send)
    for where, send in _gone(index, COMPACT):
        same_key = left.get((where, send.key), [])
        if send.key is not None and not any(_may_be_behind(index, other, send) for other in same_key):
            topic, partition = where
            what = f"{send.value} is not in {topic}-{partition}, and no newer record of key {send.key} is"
            yield Anomaly("lost-write", what, _send_proof(index, send))


def check_retained(index: Index) -> Iterator[Anomaly]:
    """Topics with a retention that have lost others than their oldest records."""
    oldest: dict[Where, int] = {
        where: min(values.values())
        for where, values in index.at_rest.items()
        if values and index.header.cleanup.get(where[0]) == DELETE
    }
    for where, send in _gone(index, DELETE):
        place = index.places.get(send.value)
        if where in oldest and place is not None and place[2] > oldest[where]:
            topic, partition = where
            what = f"{send.value} is not in {topic}-{partition}, which has older records"
            yield Anomaly("lost-write", what, _send_proof(index, send))


def _visible(index: Index, policy: str) -> Iterator[tuple[Where, Send]]:
    for where, values in index.at_rest.items():
        if index.header.cleanup.get(where[0]) == policy:
            yield from ((where, index.sends[value]) for value in values if value in index.sends)


def _gone(index: Index, policy: str) -> Iterator[tuple[Where, Send]]:
    """The committed records that are not there, with the partition that they were in, if it was read to its end."""
    topics = {topic for topic, found in index.header.cleanup.items() if found == policy}
    for send in index.sends.values() if topics else ():
        if send.topic not in topics or send.value in index.visible_at_rest:
            continue
        place = index.places.get(send.value)
        where = place[:2] if place is not None else (send.topic, send.partition)
        if index.outcome_of(send.value) is TxnOutcome.COMMITTED and index.is_read(where):
            yield where, send


def _may_be_behind(index: Index, other: Send, send: Send) -> bool:
    """Whether a record may be behind another in the log. Without their offsets, the order of sends decides."""
    there, gone = index.places.get(other.value), index.places.get(send.value)
    return there[2] > gone[2] if there is not None and gone is not None else other.at > send.at


def _send_proof(index: Index, send: Send) -> tuple[Event, ...]:
    ack = index.acks.get(send.value)
    return (*index.proof_of(send), *((ack,) if ack is not None else ()))
