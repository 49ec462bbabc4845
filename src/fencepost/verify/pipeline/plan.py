"""What a run feeds and what it disturbs: functions of its seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from random import Random
from typing import NamedTuple


class Writing(StrEnum):
    """How inputs are written."""

    PLAIN = "plain"  # Without a transaction.
    COMMITTED = "committed"
    ABORTED = "aborted"


class InputGroup(NamedTuple):
    """Inputs that are written together, by their numbers."""

    written: Writing
    numbers: range


# Of the groups of inputs, in percent.
SHARES = {
    "mixed": {Writing.PLAIN: 40, Writing.COMMITTED: 40, Writing.ABORTED: 20},
    "plain": {Writing.PLAIN: 100},
    "transactions": {Writing.COMMITTED: 75, Writing.ABORTED: 25},
}
MOST_IN_GROUP = 8


def input_groups(seed: int, mode: str) -> Iterator[InputGroup]:
    """Without end. `mode` is a name of SHARES. The first groups are one of each kind."""
    rng = Random(f"inputs {seed}")
    shares = SHARES[mode]
    kinds = list(shares)
    number = 1
    while True:
        written = kinds.pop(0) if kinds else rng.choices(list(shares), list(shares.values()))[0]
        count = rng.randint(1, MOST_IN_GROUP)
        yield InputGroup(written, range(number, number + count))
        number += count


class Kind(StrEnum):
    KILL = "kill"  # SIGKILL, and a new start.
    PAUSE = "pause"  # SIGSTOP, a second copy meanwhile, SIGCONT: the first copy is a zombie then.
    CUT = "cut"  # All connections are closed.
    DELAY = "delay"  # Replies of an API are late.
    LOSE = "lose"  # The reply of a request that was carried out is lost, with its connection.
    COMMAND = "command"  # A command of the user's.


ALL_KINDS = tuple(kind.value for kind in Kind if kind is not Kind.COMMAND)
APIS = ("Produce", "EndTxn", "TxnOffsetCommit", "OffsetCommit", "Fetch")
# The program works for at least this part of the interval before it is disturbed again.
LEAST_PART = 0.2
DELAYS_MS = (50, 1500)
DELAYED_FOR_S = (1.0, 4.0)


class Disturbance(NamedTuple):
    """`after_s` counts from the moment when the program is seen working."""

    kind: Kind
    after_s: float
    seconds: float = 0.0  # How long it lasts, if that is planned.
    fault: str = ""  # For the tap.


def disturbances(seed: int, every_s: float, kinds: Sequence[str]) -> Iterator[Disturbance]:
    """Without end, if there are kinds. Every second one is a kill, if kills are wanted; the others take turns."""
    rng = Random(f"disturbances {seed}")
    others = [Kind(kind) for kind in kinds if kind != Kind.KILL]
    rng.shuffle(others)
    turns = [turn for other in others for turn in ([Kind.KILL, other] if Kind.KILL in kinds else [other])]
    turns = turns or [Kind(kind) for kind in kinds]
    while turns:
        for kind in turns:
            yield _disturbance(rng, kind, rng.uniform(LEAST_PART, 1.0) * every_s)


def _disturbance(rng: Random, kind: Kind, after_s: float) -> Disturbance:
    if kind is Kind.DELAY:
        seconds = rng.uniform(*DELAYED_FOR_S)
        return Disturbance(
            kind, after_s, seconds, f"delay {rng.choice(APIS)} {rng.randint(*DELAYS_MS)}ms reply times=always"
        )
    if kind is Kind.LOSE:
        return Disturbance(kind, after_s, 1.0, f"disconnect {rng.choice(APIS)} reply times={rng.randint(1, 3)}")
    return Disturbance(kind, after_s)
