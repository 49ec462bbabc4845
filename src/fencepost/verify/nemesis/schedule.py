"""Which faults a run has, and when: a pure function of its dice, its length and its clients.

The faults of the network are those of `fencepost tap`. They are chosen so that a correct cluster passes with every
client: a request is delayed for less time than a client waits for its answer, because with transaction version 1 an
EndTxn that its client has given up can end the next transaction (KIP-890). Errors are those that a client tries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

NETWORK, ERRORS, KILL, PAUSE, ZOMBIE = FAULTS = ("network", "errors", "kill", "pause", "zombie")
COMMAND = "command"
NEMESIS = "nemesis"  # Who notes a fault in the history.
# Between two faults, and before the first one.
GAP_S = (0.5, 2.5)
NETWORK_S = (0.5, 3.0)
PAUSE_S = (0.5, 8.0)
ZOMBIE_S = (0.2, 2.0)
REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn", "Fetch")
COORDINATED = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")
# A second InitProducerId would fence the client that sent it.
DUPLICATED = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn")
T = TypeVar("T")
COORDINATOR_ERRORS = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")


class Dice(Protocol):
    """What is needed of `random.Random`."""

    def choice(self, seq: Sequence[T]) -> T: ...

    def randint(self, a: int, b: int) -> int: ...

    def uniform(self, a: float, b: float) -> float: ...


class FaultAction(NamedTuple):
    """One fault, from `at_s` on, counted from the start of the run.

    `what`: the client that it strikes, the fault in the words of `fencepost tap`, or the user's command.
    """

    at_s: float
    kind: str
    what: str
    seconds: float = 0.0


def schedule(
    rng: Dice,
    seconds: float,
    faults: Sequence[str],
    clients: Sequence[str],
    command: str | None = None,
    command_every_s: float = 10.0,
) -> list[FaultAction]:
    """The faults of a run in the order of their times. Each is over when the run ends."""
    actions = [FaultAction(at, COMMAND, command) for at in _every(command_every_s, seconds)] if command else []
    at_s = rng.uniform(*GAP_S)
    while faults and at_s < seconds:
        action = _choose(rng, at_s, rng.choice(faults), clients)
        actions.append(action._replace(seconds=min(action.seconds, seconds - at_s)))
        at_s += rng.uniform(*GAP_S)
    return sorted(actions)


def _every(interval_s: float, seconds: float) -> list[float]:
    return [n * interval_s for n in range(1, int(seconds / interval_s) + 1) if n * interval_s < seconds]


def _choose(rng: Dice, at_s: float, fault: str, clients: Sequence[str]) -> FaultAction:
    if fault == KILL:
        return FaultAction(at_s, fault, rng.choice(clients))
    if fault == PAUSE:
        return FaultAction(at_s, fault, rng.choice(clients), rng.uniform(*PAUSE_S))
    if fault == ZOMBIE:
        return FaultAction(at_s, fault, rng.choice(clients), rng.uniform(*ZOMBIE_S))
    words = _network(rng) if fault == NETWORK else _error(rng)
    return FaultAction(at_s, fault, words, rng.uniform(*NETWORK_S))


def _network(rng: Dice) -> str:
    """A fault in the words of `fencepost tap`."""
    action = rng.choice(["delay", "delay", "drop", "disconnect", "duplicate"])
    if action == "duplicate":
        return f"duplicate {rng.choice(DUPLICATED)} times={rng.randint(1, 20)}"
    moment = rng.choice(["request", "reply"])
    if action == "delay":
        return f"delay {rng.choice(REQUESTS)} {rng.randint(20, 800)}ms {moment} times={rng.randint(1, 20)}"
    # After a dropped request, its client waits until its patience ends.
    return f"{action} {rng.choice(REQUESTS)} {moment} times={rng.randint(1, 3)}"


def _error(rng: Dice) -> str:
    """An error in place of an answer; the broker does not see the request."""
    return f"error {rng.choice(COORDINATED)} {rng.choice(COORDINATOR_ERRORS)} times={rng.randint(1, 5)}"
