"""The commit and the abort of a producer that took longest, before each of its transactions. Pure.

An EndTxn that comes late was given up by its client, which has repeated it: the end of its transaction took long.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.verify.checkers.index import HistoryTxn, Index


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
