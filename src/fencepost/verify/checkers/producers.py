"""Fenced producers that still wrote, last stable offsets that do not move, and reused sequence numbers. Pure.

librdkafka gives up a record whose Produce was not answered when its transaction is aborted, and gives its sequence
number to the next record. With transaction version 1 both have the same producer epoch. If the first record is in the
log, Kafka takes the second one for a repeated request: it acknowledges it with the offset of the first, and does not
write it. The log proves it: the offset of the acknowledgement has a record of an earlier transaction, of which the
client never had an answer, and the acknowledged record is nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.verify.checkers.index import HistoryTxn, Index
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Event, Init, TxnOutcome


def check_epochs(index: Index) -> Iterator[Anomaly]:
    """Records in the log whose producer epoch is lower than one before them, of the same producer id."""
    for (topic, partition), logs in index.logs.items():
        highest: dict[int, tuple[int, int]] = {}  # By producer id: the highest epoch so far, and its offset.
        for log in logs:
            for offset, kind, value, producer_id, epoch in log.entries:
                if producer_id < 0:
                    continue
                known = highest.get(producer_id)
                if known is None or epoch > known[0]:
                    highest[producer_id] = (epoch, offset)
                elif epoch < known[0] and kind == "data":
                    what = (
                        f"{topic}-{partition}: {value} at offset {offset} has epoch {epoch} of producer id "
                        f"{producer_id}, which had epoch {known[0]} at offset {known[1]} already"
                    )
                    send: tuple[Event, ...] = (index.sends[value],) if value in index.sends else ()
                    yield Anomaly("fenced-write", what, (*send, log))


def check_fenced(index: Index) -> Iterator[Anomaly]:
    """Producers that wrote or committed after another client had initialised the same transactional id."""
    successors = _successors(index)
    for txn in index.txns.values():
        if txn.init is None:
            continue
        transactional_id = txn.init.transactional_id
        newer = successors.get(id(txn.init))
        effect = _effect_after(index, txn, newer) if newer is not None else None
        if newer is not None and effect is not None:
            what, proof = effect
            yield Anomaly("fenced-write", f"{txn}: {newer.by} took over {transactional_id}, and {what}", proof)


def _successors(index: Index) -> dict[int, Init]:
    """For each initialisation, by its identity, the first later one of its transactional id by another client."""
    found: dict[int, Init] = {}
    later: dict[str, Init] = {}
    for init in reversed(_in_order(index.inits)):
        following = later.get(init.transactional_id)
        if following is not None and following.by == init.by:
            newer = found.get(id(following))
        else:
            newer = following
        if newer is not None:
            found[id(init)] = newer
        later[init.transactional_id] = init
    return found


def _in_order(inits: Sequence[Init]) -> list[Init]:
    """By producer id and epoch: a client that was paused notes late that it was initialised."""
    first_at: dict[tuple[str, int], int] = {}
    for init in inits:
        first_at.setdefault((init.transactional_id, init.producer_id), init.at)
    return sorted(inits, key=lambda init: (first_at[init.transactional_id, init.producer_id], init.epoch))


def _effect_after(index: Index, txn: HistoryTxn, newer: Init) -> tuple[str, tuple[Event, ...]] | None:
    """What a transaction did after its producer was fenced, and the proof of it."""
    for send in txn.sends:
        ack = index.acks.get(send.value)
        if send.at > newer.at and ack is not None:
            return f"{send.value} was acknowledged after that", (newer, send, ack)
    asked = txn.asked
    is_late = asked is not None and asked.at > newer.at
    if is_late and txn.outcome is TxnOutcome.COMMITTED and (txn.sends or txn.offsets):
        return "the commit was answered with success after that", (newer, *txn.proof)
    return None


def check_last_stable_offsets(index: Index) -> Iterator[Anomaly]:
    """Partitions whose last stable offset is below the high watermark, although every transaction is over."""
    for (topic, partition), answer in index.watermarks.items():
        if index.stuck((topic, partition)) is not None:
            what = (
                f"{topic}-{partition}: the last stable offset is {answer.last_stable_offset} at rest, "
                f"the high watermark is {answer.high_watermark}"
            )
            rest = (index.rest,) if index.rest is not None else ()
            yield Anomaly("stuck-LSO", what, (*rest, answer))


def check_reused_sequences(index: Index) -> Iterator[Anomaly]:
    for value, earlier in index.taken_for_duplicates.items():
        send, ack = index.sends[value], index.acks[value]
        what = (
            f"{value} was acknowledged at {ack.topic}-{ack.partition} offset {ack.offset}, which has {earlier} of an "
            f"earlier transaction: the client gave both the same sequence number, so {index.txn_of(send)} has no "
            f"{value}"
        )
        logs = index.logs[ack.topic, ack.partition]
        log = next(log for log in logs if any(entry[0] == ack.offset for entry in log.entries))
        proof = (*index.proof_of(index.sends[earlier]), *index.proof_of(send), ack, log)
        yield Anomaly("reused-sequence", what, proof)
