"""How many transactions are committed and aborted per second, from the records of `__transaction_state`."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.txn.records import state_in_value
from fencepost.machines.txn.states import COMPLETE_ABORT, COMPLETE_COMMIT
from fencepost.protocol.batch import Buffer
from fencepost.protocol.records import iter_records


class EndCount(NamedTuple):
    """The transactions that ended between two looks."""

    at_ms: int
    # The time between the looks; None: there was no earlier look, and nothing was counted.
    seconds: float | None
    commits: int = 0
    aborts: int = 0
    is_estimate: bool = False  # Counted in a part of the records only.


class Rates(NamedTuple):
    samples: tuple[EndCount, ...]

    def document(self) -> dict[str, list[float | None] | bool]:
        """As columns, which a plot takes, and whether a number among them is an estimate."""
        return {
            "times_ms": [sample.at_ms for sample in self.samples],
            "commits": [_per_second(sample.commits, sample.seconds) for sample in self.samples],
            "aborts": [_per_second(sample.aborts, sample.seconds) for sample in self.samples],
            "has_estimates": any(sample.is_estimate for sample in self.samples),
        }


def _per_second(count: int, seconds: float | None) -> float | None:
    return round(count / seconds, 1) if seconds else None


# Shorter values have no state.
LEAST_VALUE_BYTES = 17


def count_ends(batch: Buffer, start: int, end: int) -> tuple[int, int]:
    """How many transactions were committed and aborted, by the records of a batch between two offsets."""
    states = [
        state_in_value(record.value, 0)
        for record in iter_records(batch)
        if start <= record.offset < end and record.value is not None and len(record.value) >= LEAST_VALUE_BYTES
    ]
    return states.count(COMPLETE_COMMIT), states.count(COMPLETE_ABORT)
