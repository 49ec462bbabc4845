"""What Fencepost is to reach, in one run with the others."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.contenders import FENCEPOST, KAFKA, MOCK
from benchmarks.figures import median, ratio
from benchmarks.results import Results


class Goal(NamedTuple):
    """A bound for a figure of a case: for its ratio to a contender, or for itself."""

    case: str
    figure: str
    bound: float
    against: str | None = KAFKA
    is_minimum: bool = True

    def reached(self, results: Results) -> float | None:
        """The value that is held against the bound; None if it was not measured."""
        ours = results.of(self.case, FENCEPOST)
        if self.against is not None:
            return ratio(ours, results.of(self.case, self.against), self.figure)
        return median(ours, self.figure)

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.is_minimum else value <= self.bound


GOALS = (
    Goal("transactions-1", "per_s", 1.8),
    Goal("transactions-8", "per_s", 3.3),
    Goal("transactions-8", "broker_cpu_us", 250, None, is_minimum=False),
    Goal("batches", "per_s", 0.85, MOCK),
    Goal("consume-process-produce", "per_s", 3.3),
    Goal("consume-process-produce", "per_s", 0.85, MOCK),
    Goal("produce-100B", "per_s", 0.85, MOCK),
    Goal("produce-1KiB", "per_s", 1.6),
    Goal("fetch-100B", "per_s", 1.2),
    Goal("fetch-1KiB", "per_s", 1.2),
    Goal("fetch-aborted", "per_s", 1.5),
    Goal("commit-to-consumer", "p50", 0.35, is_minimum=False),
    Goal("commit-to-consumer", "p99", 0.25, is_minimum=False),
)
