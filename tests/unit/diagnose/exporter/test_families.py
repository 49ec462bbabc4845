"""Readings made by hand, as Prometheus sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.core import Metric

from fencepost.client.admin.answers import DescribedTxn, ListedTxn
from fencepost.diagnose.exporter.families import (
    PREFIX,
    CollectorStatus,
    ExporterReading,
    fencings_between,
    reading_families,
    status_families,
)
from fencepost.diagnose.snapshot import Look, TxnsSnapshot
from fencepost.machines.txn.records import partition_for
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, described, ends, producer

Samples = dict[tuple[str, tuple[str, ...]], float]
STATUS = CollectorStatus("1.2", True, 5.0, 0.5, 2, 3)


def samples(families: Iterable[Metric]) -> Samples:
    return {
        (sample.name.removeprefix(f"{PREFIX}_"), tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def reading(**changes: Any) -> ExporterReading:
    """`orders-sink` is open for 12 s; on orders-0 it holds 10 offsets, payments-3 has no records yet."""
    txn = described(partitions=(ORDERS,))
    listed = (ListedTxn("orders-sink", 1, 7, "Ongoing"), ListedTxn("idle", 2, 8, "CompleteCommit"))
    fields: dict[str, Any] = {
        "lso": Look(
            now_ms=NOW_MS,
            ends={ORDERS: ends(40, 50), PAYMENTS: ends(0, 0)},
            producers={ORDERS: (producer(40),)},
            txns={7: txn},
        ),
        "txns": TxnsSnapshot(now_ms=NOW_MS, listed=listed, described={"orders-sink": txn}),
        "coordinators": (1, 2, 1),
        "ends_bump_epochs": True,
    }
    return ExporterReading(**fields | changes)


def test_the_gap_and_the_age_of_a_partition_are_there_and_empty_partitions_are_not() -> None:
    found = samples(reading_families(reading()))
    assert found["partition_lso_gap_offsets", ("orders", "0")] == 10
    assert found["partition_lso_age_seconds", ("orders", "0")] == 12
    assert ("partition_lso_gap_offsets", ("payments", "3")) not in found


def test_a_partition_where_nothing_waits_has_age_0() -> None:
    lso = Look(now_ms=NOW_MS, ends={ORDERS: ends(50, 50)})
    found = samples(reading_families(reading(lso=lso)))
    assert found["partition_lso_age_seconds", ("orders", "0")] == 0


def test_every_state_is_counted_even_if_no_id_has_it() -> None:
    found = samples(reading_families(reading()))
    assert found["transactional_ids", ("Ongoing",)] == 1
    assert found["transactional_ids", ("CompleteCommit",)] == 1
    assert found["transactional_ids", ("PrepareAbort",)] == 0


def test_a_hanging_transaction_counts_as_open_and_may_be_the_oldest() -> None:
    lso = reading().lso
    hanging = {PAYMENTS: (producer(3, producer_id=99, last_timestamp_ms=NOW_MS - 90_000),)}
    found = samples(reading_families(reading(lso=replace(lso, producers={**lso.producers, **hanging}))))
    assert found["hanging_transactions", ("payments", "3")] == 1
    assert found["open_transactions", ()] == 2
    assert found["oldest_open_transaction_age_seconds", ()] == 90
    alone = samples(reading_families(reading()))
    assert alone["open_transactions", ()] == 1
    assert alone["oldest_open_transaction_age_seconds", ()] == 12


def test_the_load_of_each_coordinator_is_told_by_partition_and_broker() -> None:
    found = samples(reading_families(reading()))
    where, idle = partition_for("orders-sink", 3), partition_for("idle", 3)
    assert sum(value for (name, _), value in found.items() if name == "coordinator_transactional_ids") == 2
    assert found["coordinator_open_transactions", (str(where), str((1, 2, 1)[where]))] == 1
    assert found["coordinator_transactional_ids", (str(idle), str((1, 2, 1)[idle]))] >= 1


def test_questions_without_an_answer_are_counted_once_each() -> None:
    txns = replace(reading().txns, problems=("broker 2 is away",))
    lso = replace(reading().lso, problems=("broker 2 is away", "another"))
    assert samples(reading_families(reading(txns=txns, lso=lso)))["unanswered_questions", ()] == 2


def test_only_counters_end_in_total_and_every_metric_has_the_prefix_and_a_help_text() -> None:
    families = [*status_families(STATUS), *reading_families(reading())]
    for family in families:
        assert family.name.startswith(f"{PREFIX}_")
        assert family.documentation.endswith(".")
        assert {sample.name.endswith("_total") for sample in family.samples} <= {family.type == "counter"}
    assert len({family.name for family in families}) == len(families)
    found = samples(status_families(STATUS))
    assert found["producer_fencings_total", ()] == 3
    assert found["build_info", ("1.2",)] == 1


def seen(**changes: Any) -> dict[str, DescribedTxn]:
    return {"orders-sink": described(**changes)}


@pytest.mark.parametrize(
    ("before", "after", "with_tv1", "with_tv2"),
    [
        (seen(), seen(), 0, 0),
        ({}, seen(state="Empty"), 0, 0),
        (seen(), seen(state="Empty", producer_epoch=5), 1, 1),
        (seen(), seen(state="Empty", producer_id=8, producer_epoch=0), 1, 1),
        # With TV2 the end of a transaction gives the next epoch.
        (seen(), seen(state="CompleteCommit", producer_epoch=5), 1, 0),
        (seen(), {}, 0, 0),
    ],
    ids=["the same", "new", "registered again", "new producer id", "ended", "expired"],
)
def test_a_fencing_is_a_registration_of_an_id_that_was_there(
    before: dict[str, DescribedTxn], after: dict[str, DescribedTxn], with_tv1: int, with_tv2: int
) -> None:
    assert fencings_between(before, after, ends_bump_epochs=False) == with_tv1
    assert fencings_between(before, after, ends_bump_epochs=True) == with_tv2
