"""The legal moves of a transactional id, each with its cause: for diagrams of its states."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.txn.states import LEGAL

# What causes a move. A test checks that each of them is in the table of legal moves.
TXN_CAUSES = {
    ("Empty", "Empty"): "InitProducerId",
    ("Empty", "Ongoing"): "a partition is added",
    ("Empty", "PrepareAbort"): "EndTxn abort (TV2)",
    ("Empty", "Dead"): "the id expires",
    ("Ongoing", "Ongoing"): "another partition is added",
    ("Ongoing", "PrepareCommit"): "EndTxn commit",
    ("Ongoing", "PrepareAbort"): "EndTxn abort, timeout, or a new producer",
    ("Ongoing", "PrepareEpochFence"): "in Kafka's table, never recorded here",
    ("PrepareCommit", "CompleteCommit"): "all markers are written",
    ("PrepareAbort", "CompleteAbort"): "all markers are written",
    ("CompleteCommit", "Empty"): "InitProducerId",
    ("CompleteCommit", "Ongoing"): "the next transaction begins",
    ("CompleteCommit", "Dead"): "the id expires",
    ("CompleteAbort", "Empty"): "InitProducerId",
    ("CompleteAbort", "Ongoing"): "the next transaction begins",
    ("CompleteAbort", "Dead"): "the id expires",
    ("CompleteCommit", "PrepareAbort"): "EndTxn abort (TV2)",
    ("CompleteAbort", "PrepareAbort"): "EndTxn abort (TV2)",
}


class Move(NamedTuple):
    before: str
    after: str
    cause: str


def legal_moves() -> tuple[Move, ...]:
    """Every legal move, in the order of the table."""
    names = [(before.kafka_name, after.kafka_name) for before, allowed in LEGAL.items() for after in sorted(allowed)]
    return tuple(Move(before, after, TXN_CAUSES.get((before, after), "")) for before, after in names)
