"""The states of a transactional id as a drawing: where each state is, and which moves it made.

The states and the legal moves come from the table of the state machine. A state without a position fails a test; a new
move between known states is drawn by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from fencepost.machines.txn.states import KAFKA_NAMES, LEGAL

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


WIDTH, HEIGHT = 760, 430
# The middle of each state.
POSITIONS = {
    "Empty": (80, 200),
    "Ongoing": (280, 200),
    "PrepareCommit": (470, 75),
    "CompleteCommit": (665, 75),
    "PrepareEpochFence": (470, 200),
    "PrepareAbort": (470, 325),
    "CompleteAbort": (665, 325),
    "Dead": (80, 390),
}
# How far the middle of an arrow is beside the straight line, to the left of its direction; 0 if it is not here.
BENDS = {
    ("CompleteCommit", "Empty"): -115,
    ("CompleteCommit", "Dead"): 78,
    ("CompleteAbort", "Empty"): 115,
    ("CompleteAbort", "PrepareAbort"): 32,
    ("CompleteAbort", "Dead"): 50,
}


def machine_document(current: str | None, way: Sequence[str]) -> dict[str, Any]:
    """`current` is the state now, and `way` the states that led to it, in their order."""
    steps: dict[tuple[str, str], list[int]] = {}
    for number, move in enumerate(pairwise(way), start=1):
        steps.setdefault(move, []).append(number)
    states = [
        {
            "name": name,
            "x": POSITIONS[name][0],
            "y": POSITIONS[name][1],
            "is_current": name == current,
            "was_visited": name in way,
        }
        for name in KAFKA_NAMES.values()
    ]
    moves = [
        {
            "before": move.before,
            "after": move.after,
            "cause": move.cause,
            "bend": BENDS.get((move.before, move.after), 0),
            # The numbers of the moves of the way that went here.
            "steps": steps.get((move.before, move.after), []),
        }
        for move in legal_moves()
    ]
    return {"width": WIDTH, "height": HEIGHT, "states": states, "moves": moves, "current": current, "way": list(way)}
