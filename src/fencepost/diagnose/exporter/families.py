"""A reading of the cluster as metrics, and the fencings between two readings. Pure.

All names begin with `fencepost_exporter_`: not `kafka_`, which the exporters of JMX and of consumer groups use, and not
`fencepost_` alone, which a Fencepost broker uses for its own metrics. One search finds all of these, and none of them
means something else elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fencepost.client.admin.answers import DescribedTxn
from fencepost.diagnose.hanging import HangingReport, diagnose_hanging
from fencepost.diagnose.lso import diagnose_lso
from fencepost.diagnose.snapshot import Look, TxnsSnapshot, is_open
from fencepost.diagnose.txns import age_of
from fencepost.machines.txn.records import partition_for
from fencepost.machines.txn.states import BY_KAFKA_NAME, EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterReading:
    lso: Look
    txns: TxnsSnapshot
    # The leader of each partition of `__transaction_state`; empty while the cluster has had no transaction.
    coordinators: tuple[int, ...]
    # With TV2, every end of a transaction changes the epoch of its producer.
    ends_bump_epochs: bool

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.lso.unanswered_coordinators, *self.lso.problems, *self.txns.problems)))


def fencings_between(
    before: Mapping[str, DescribedTxn], after: Mapping[str, DescribedTxn], ends_bump_epochs: bool
) -> int:
    """How many producers were fenced between two looks, as far as two looks show it.

    A producer that registers an id gets a higher epoch, or a new producer id, and fences all earlier ones. With TV1
    every new epoch is a fencing. With TV2 the end of a transaction gives one, too, so that only an id without a
    transaction since its registration (`Empty`) shows one. Several fencings of an id between two looks count once.
    """
    return sum(
        _is_newer(before[id_], txn) and (not ends_bump_epochs or txn.state == EMPTY.kafka_name)
        for id_, txn in after.items()
        if id_ in before
    )


def _is_newer(before: DescribedTxn, after: DescribedTxn) -> bool:
    return before.producer_id != after.producer_id or before.producer_epoch < after.producer_epoch


PREFIX = "fencepost_exporter"
WHERE = ["topic", "partition"]


class CollectorStatus(NamedTuple):
    """How the exporter itself is doing."""

    version: str
    is_up: bool
    last_success_s: float  # A Unix time; 0: never.
    duration_s: float
    failures: int
    fencings: int


def status_families(status: CollectorStatus) -> Iterator[Metric]:
    yield _gauge("up", "1 if the last collection reached the cluster, 0 if it failed or is too old.", status.is_up)
    build = GaugeMetricFamily(f"{PREFIX}_build_info", "The version of the exporter.", labels=["version"])
    build.add_metric([status.version], 1)
    yield build
    yield _gauge("last_success_timestamp_seconds", "When a collection last reached the cluster.", status.last_success_s)
    yield _gauge("collection_duration_seconds", "How long the last collection took.", status.duration_s)
    text = "Collections that did not reach the cluster."
    yield CounterMetricFamily(f"{PREFIX}_collection_failures", text, value=status.failures)
    text = (
        "Producers that were fenced because another one registered their transactional id, as seen between collections."
    )
    yield CounterMetricFamily(f"{PREFIX}_producer_fencings", text, value=status.fencings)


def reading_families(reading: ExporterReading) -> Iterator[Metric]:
    yield _gauge(
        "unanswered_questions", "Questions that some broker did not answer; other metrics lack them.",
        len(reading.problems),
    )  # fmt: skip
    hanging = diagnose_hanging(reading.lso)
    yield from _partitions(reading)
    yield from _transactions(reading, hanging)
    yield from _coordinators(reading)


def _partitions(reading: ExporterReading) -> Iterator[Metric]:
    gap = GaugeMetricFamily(
        f"{PREFIX}_partition_lso_gap_offsets",
        "Offsets between the last stable offset and the high watermark: read_committed readers cannot see them.",
        labels=WHERE,
    )
    age = GaugeMetricFamily(
        f"{PREFIX}_partition_lso_age_seconds",
        "Age of the transaction that holds the last stable offset; 0 if none does.",
        labels=WHERE,
    )
    for row in sorted(diagnose_lso(reading.lso, shows_all=True).partitions, key=lambda row: (row.topic, row.partition)):
        if row.high_watermark == 0:
            continue  # Empty partitions would only add thousands of lines.
        where = [row.topic, str(row.partition)]
        gap.add_metric(where, row.waiting)
        if row.age_ms is not None or row.producer_id is None:
            age.add_metric(where, (row.age_ms or 0) / 1000)
    yield from (gap, age)


def _transactions(reading: ExporterReading, hanging: HangingReport) -> Iterator[Metric]:
    counts = Counter(dict.fromkeys(BY_KAFKA_NAME, 0))
    counts.update(txn.state for txn in reading.txns.listed)
    states = GaugeMetricFamily(
        f"{PREFIX}_transactional_ids", "Transactional ids, by the state of their transaction.", labels=["state"]
    )
    for state, count in sorted(counts.items()):
        states.add_metric([state], count)
    yield states
    hangs = GaugeMetricFamily(
        f"{PREFIX}_hanging_transactions", "Transactions that no coordinator will end, by partition.", labels=WHERE
    )
    for (topic, partition), count in sorted(Counter(h.where for h in hanging.hanging).items()):
        hangs.add_metric([topic, str(partition)], count)
    yield hangs
    open_count = sum(is_open(txn.state) for txn in reading.txns.listed)
    yield _gauge(
        "open_transactions",
        "Transactions without an end: those of coordinators, and hanging ones.",
        open_count + len(hanging.hanging),
    )
    ages = [age_of(txn, reading.txns.now_ms) for txn in reading.txns.described.values()]
    ages += [h.age_ms for h in hanging.hanging]
    oldest_ms = max((age_ms for age_ms in ages if age_ms is not None), default=0)
    yield _gauge(
        "oldest_open_transaction_age_seconds",
        "Age of the oldest transaction without an end, hanging ones included; 0 if there is none.",
        oldest_ms / 1000,
    )


def _coordinators(reading: ExporterReading) -> Iterator[Metric]:
    labels = ["partition", "broker"]
    ids = GaugeMetricFamily(
        f"{PREFIX}_coordinator_transactional_ids",
        "Transactional ids, by partition of __transaction_state and the broker that leads it.",
        labels=labels,
    )
    open_ = GaugeMetricFamily(
        f"{PREFIX}_coordinator_open_transactions",
        "Open transactions, by partition of __transaction_state and the broker that leads it.",
        labels=labels,
    )
    count = len(reading.coordinators)
    all_, busy = Counter[int](), Counter[int]()
    for txn in reading.txns.listed if count else ():
        partition = partition_for(txn.transactional_id, count)
        all_[partition] += 1
        busy[partition] += is_open(txn.state)
    for partition, broker in enumerate(reading.coordinators):
        ids.add_metric([str(partition), str(broker)], all_[partition])
        open_.add_metric([str(partition), str(broker)], busy[partition])
    yield from (ids, open_)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
