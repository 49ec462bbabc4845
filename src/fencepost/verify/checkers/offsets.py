"""The offsets that a group committed in transactions, against the outputs of these transactions. Pure.

An input without an output may have been filtered. It is accused if a writer made an output of it that is not there, or
if the header says that its group makes an output of every input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from fencepost.verify.checkers.index import GroupWhere, HistoryTxn, Index, Place, Where
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Committed, Event, Send, SendOffsets, TxnOutcome

Sent = TypeVar("Sent", Send, SendOffsets)


def check_offsets(index: Index) -> Iterator[Anomaly]:
    """Groups that are behind or ahead of the outputs at rest, and those that were at an offset before its commit."""
    sent: dict[GroupWhere, list[tuple[int, HistoryTxn, SendOffsets]]] = defaultdict(list)
    for txn in index.txns.values():
        for event in txn.offsets:
            for topic, partition, offset in event.offsets:
                sent[event.group, topic, partition].append((offset, txn, event))
    yield from _pending(index, sent)
    for where, (offset, answer) in index.committed.items():
        if where in sent:
            yield from _compare(index, where, offset, answer, sent[where])
    yield from _skipped_inputs(index, {where: {txn.by for _, txn, _ in found} for where, found in sent.items()})
    yield from _never_copied(index)


def _pending(index: Index, sent: dict[GroupWhere, list[tuple[int, HistoryTxn, SendOffsets]]]) -> Iterator[Anomaly]:
    """Answers with an offset whose transaction was not asked to commit it by then, or was aborted."""
    for answer in index.answers:
        for topic, partition, offset in answer.offsets:
            mine = [each[1:] for each in sent.get((answer.group, topic, partition), ()) if each[0] == offset]
            if mine and not any(_may_count(txn, answer) for txn, _ in mine):
                event = _suspect(index, [event for _, event in mine])
                txn = index.txns[event.by, event.txn]
                what = f"group {answer.group} was at {topic}-{partition} offset {offset}, which only {txn} sent"
                yield Anomaly("offsets-ahead", what, (*txn.proof, event, answer))


def _may_count(txn: HistoryTxn, answer: Committed) -> bool:
    asked = txn.asked
    return asked is not None and asked.at < answer.at and txn.outcome is not TxnOutcome.ABORTED


def _took_effect(index: Index, txn: HistoryTxn) -> bool | None:
    """Whether a transaction committed: as the broker said, or as its records show; None if neither tells."""
    if txn.outcome is not TxnOutcome.UNKNOWN:
        return txn.outcome is TxnOutcome.COMMITTED
    if any(send.value in index.visible_at_rest for send in txn.sends):
        return True
    return False if any(index.is_missing(send) for send in txn.sends) else None


def _compare(
    index: Index, where: GroupWhere, offset: int, answer: Committed, sent: list[tuple[int, HistoryTxn, SendOffsets]]
) -> Iterator[Anomaly]:
    group, topic, partition = where
    effects = [(_took_effect(index, txn), found, txn, event) for found, txn, event in sent]
    done = [(found, txn, event) for effect, found, txn, event in effects if effect]
    possible = [found for effect, found, _, _ in effects if effect is not False]
    name = f"group {group} is at {topic}-{partition} offset {offset}"
    for found, txn, event in done:
        if found > offset:
            what = f"{name}, and {txn}, which sent offset {found}, has taken effect"
            yield Anomaly("offsets-behind", what, (*txn.proof, event, answer))
    guilty = [(txn, event) for effect, found, txn, event in effects if effect is False and found == offset]
    # A group that begins at an offset which it has from elsewhere is at no transaction's.
    if offset > max(possible, default=0) and (guilty or offset > max(found for _, found, _, _ in effects)):
        of = f"; {guilty[-1][0]} sent it" if guilty else ""
        what = f"{name}, the highest offset of a transaction that has taken effect is {max(possible, default=None)}{of}"
        proof = (*guilty[-1][0].proof, guilty[-1][1]) if guilty else ()
        yield Anomaly("offsets-ahead", what, (*proof, answer))


def _skipped_inputs(index: Index, writers: dict[GroupWhere, set[str]]) -> Iterator[Anomaly]:
    """Inputs below a group's offset of which a writer made outputs, and of which none is there."""
    attempts: dict[tuple[str, int], dict[int, list[Send]]] = defaultdict(lambda: defaultdict(list))
    for send in index.sends.values():
        if send.source is not None:
            topic, partition, offset = send.source
            attempts[topic, partition][offset].append(send)
    for where, (position, answer) in index.committed.items():
        group, topic, partition = where
        if group in index.header.copies:
            continue
        for offset, sends in attempts.get((topic, partition), {}).items():
            mine = [send for send in sends if send.by in writers.get(where, ())]
            # An output that was confirmed and is missing is lost, and no fault of the offsets.
            confirmed = any(index.outcome_of(send.value) is TxnOutcome.COMMITTED for send in mine)
            if mine and offset < position and not confirmed and all(index.is_missing(send) for send in mine):
                what = f"group {group} is at {topic}-{partition} offset {position}, the input at {offset} has no output"
                yield Anomaly("offsets-ahead", what, (*index.proof_of(_suspect(index, mine)), answer))


def _never_copied(index: Index) -> Iterator[Anomaly]:
    """Inputs below the offset of a group that makes an output of every input, and of which it has none."""
    attempts: dict[tuple[str, Place], list[Send]] = defaultdict(
        list
    )  # By topic of the outputs, and place of the input.
    targets = set(index.header.copies.values())
    for send in index.sends.values() if targets else ():
        if send.source is not None and send.topic in targets:
            topic, partition, offset = send.source
            attempts[send.topic, (topic, partition, offset)].append(send)
    for (group, topic, partition), (position, answer) in index.committed.items():
        target = index.header.copies.get(group)
        if target is None or not _is_known(index, (topic, partition), target):
            continue
        for value, offset in index.at_rest[topic, partition].items():
            mine = attempts.get((target, (topic, partition, offset)), [])
            # An output that was confirmed and is missing is lost, and no fault of the offsets.
            is_done = any(
                send.value in index.visible_at_rest
                or send.value in index.taken_for_duplicates
                or index.outcome_of(send.value) is TxnOutcome.COMMITTED
                for send in mine
            )
            if offset < position and not is_done:
                what = f"group {group} is at {topic}-{partition} offset {position}, {value} at {offset} has no output"
                proof = index.proof_of(_suspect(index, mine)) if mine else ()
                yield Anomaly("offsets-ahead", what, (*_seen(index, value), *proof, answer))


def _suspect(index: Index, sent: list[Sent]) -> Sent:
    """What was sent in the transaction that may have moved the group: in the last one that was refused, or the last.

    A transaction that its own request aborted has moved nothing.
    """
    refused = (each for each in reversed(sent) if (txn := index.txn_of(each)) is not None and txn.error)
    return next(refused, sent[-1])


def _is_known(index: Index, source: Where, target: str) -> bool:
    """Whether the inputs of a partition, and all outputs in a topic, were read at rest."""
    partitions = range(index.header.topics.get(target, 0))
    return index.is_read(source) and all(index.is_read((target, partition)) for partition in partitions)


def _seen(index: Index, value: str) -> tuple[Event, ...]:
    return (index.seen[value][0],) if value in index.seen else ()
