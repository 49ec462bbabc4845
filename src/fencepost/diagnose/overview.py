"""A cluster at a glance: its open transactions by age, where readers and groups wait, and how many transactions end.

The ends per second are counted in the records of `__transaction_state`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from fencepost.diagnose.lso import AffectedGroup, LsoRow, Pin, diagnose_lso
from fencepost.diagnose.snapshot import Look, TxnsSnapshot, is_open
from fencepost.diagnose.txns import Filters, TxnRow, diagnose_txns
from fencepost.machines.txn.records import state_in_value
from fencepost.machines.txn.states import BY_KAFKA_NAME, COMPLETE_ABORT, COMPLETE_COMMIT
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


# The upper ends of the bands of ages; the last band has none.
AGE_BANDS_MS = (1_000, 10_000, 60_000, 300_000, 900_000)
# An overview shows the first of each kind. The lists have all.
SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewSnapshot:
    cluster_id: str
    broker_count: int
    is_fencepost: bool
    lso: Look
    # Every id; only those with an open transaction are described.
    txns: TxnsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBand:
    # None: there is no upper end.
    below_ms: int | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    now_ms: int
    cluster_id: str
    broker_count: int
    is_fencepost: bool
    transactional_id_count: int
    open_count: int
    # The number of ids in each state of Kafka's table.
    states: dict[str, int]
    ages: tuple[AgeBand, ...]
    # The oldest open transactions.
    oldest: tuple[TxnRow, ...]
    partition_count: int
    waiting_partition_count: int
    # The partitions where readers wait, the longest wait first.
    gaps: tuple[LsoRow, ...]
    # The transactions that readers wait for, the oldest first; hanging ones, too.
    pin_count: int
    pins: tuple[Pin, ...]
    # The groups that wait, the largest lag first.
    group_count: int
    groups: tuple[AffectedGroup, ...]
    problems: tuple[str, ...]


def diagnose_overview(snapshot: OverviewSnapshot) -> Overview:
    lso = diagnose_lso(snapshot.lso)
    listed = snapshot.txns.listed
    # There can be very many idle ids, of which only the number is shown.
    busy = replace(snapshot.txns, listed=tuple(txn for txn in listed if is_open(txn.state)))
    open_ = diagnose_txns(busy, Filters()).transactions
    return Overview(
        now_ms=snapshot.lso.now_ms,
        cluster_id=snapshot.cluster_id,
        broker_count=snapshot.broker_count,
        is_fencepost=snapshot.is_fencepost,
        transactional_id_count=len(listed),
        open_count=len(open_),
        states={**dict.fromkeys(BY_KAFKA_NAME, 0), **Counter(txn.state for txn in listed)},
        ages=age_bands([row.age_ms for row in open_ if row.age_ms is not None]),
        oldest=open_[:SHOWN],
        partition_count=lso.partition_count,
        waiting_partition_count=lso.waiting_count,
        gaps=lso.partitions[:SHOWN],
        pin_count=len(lso.pins),
        pins=lso.pins[:SHOWN],
        group_count=len(lso.groups),
        groups=lso.groups[:SHOWN],
        problems=tuple(dict.fromkeys((*lso.problems, *lso.warnings, *snapshot.txns.problems))),
    )


def age_bands(ages_ms: list[int]) -> tuple[AgeBand, ...]:
    lows, highs = (0, *AGE_BANDS_MS), (*AGE_BANDS_MS, None)
    return tuple(
        AgeBand(below_ms=high, count=sum(low <= age_ms and (high is None or age_ms < high) for age_ms in ages_ms))
        for low, high in zip(lows, highs, strict=True)
    )
