"""What Fencepost is to reach, in one run with the others."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.contenders import FENCEPOST, KAFKA, MOCK
from benchmarks.figures import ratio
from benchmarks.results import Results


class Goal(NamedTuple):
    """A bound for a figure of a case: for its ratio to a contender."""

    case: str
    figure: str
    bound: float
    against: str = KAFKA
    is_minimum: bool = True

    def reached(self, results: Results) -> float | None:
        """The value that is held against the bound; None if it was not measured."""
        return ratio(results.of(self.case, FENCEPOST), results.of(self.case, self.against), self.figure)

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.is_minimum else value <= self.bound


# Client and broker share two cores, and the client is the limit in nearly every case. So the goals are shares of what
# the client reaches with the mock, which keeps nothing, the CPU time of the broker, and never to be slower than Kafka.
GOALS = (
    Goal("transactions-1", "per_s", 0.9, MOCK),
    Goal("transactions-8", "per_s", 0.9, MOCK),
    Goal("batches", "per_s", 0.9, MOCK),
    Goal("consume-process-produce", "per_s", 0.8, MOCK),
    *(
        Goal(case, "per_s", 1.0)
        for case in (
            "transactions-1", "transactions-8", "batches", "consume-process-produce", "produce-100B", "produce-1KiB",
            "fetch-100B", "fetch-1KiB", "fetch-aborted",
        )
    ),
    Goal("commit-to-consumer", "p50", 1.0, is_minimum=False),
    Goal("transactions-1", "broker_cpu_us", 0.3, is_minimum=False),
    Goal("transactions-8", "broker_cpu_us", 0.3, is_minimum=False),
    Goal("batches", "broker_cpu_us", 0.4, is_minimum=False),
    Goal("fetch-100B", "broker_cpu_us", 1.0, is_minimum=False),
    Goal("fetch-1KiB", "broker_cpu_us", 1.0, is_minimum=False),
    Goal("fetch-aborted", "broker_cpu_us", 1.0, is_minimum=False),
)  # fmt: skip
