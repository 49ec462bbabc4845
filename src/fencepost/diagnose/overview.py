"""A cluster at a glance: its open transactions by age, the partitions where readers wait, and the groups that do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from fencepost.diagnose.affected import AffectedGroup
from fencepost.diagnose.lso import LsoRow, Pin, diagnose_lso
from fencepost.diagnose.snapshot import Look, TxnsSnapshot, is_open
from fencepost.diagnose.txns import Filters, TxnRow, diagnose_txns
from fencepost.machines.txn.states import BY_KAFKA_NAME

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
