"""The list of transactions with its filters, and one of them with every field."""

from __future__ import annotations

import re

import pytest

from fencepost.client.admin.answers import ListedTxn
from fencepost.diagnose.snapshot import TxnsSnapshot
from fencepost.diagnose.txns import Filters, diagnose_description, diagnose_txns
from fencepost.machines.txn.states import TxnState
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, described, ends, entry, producer, txn_snapshot

DAY_MS = 86_400_000
TXNS = [
    described(),
    described(transactional_id="orders-2", producer_id=8, start_ms=NOW_MS - 45_000),
    described("CompleteCommit", transactional_id="audit", producer_id=9, partitions=()),
    described("Empty", transactional_id="gone", producer_id=10, partitions=(), start_ms=-1),
]
SNAPSHOT = TxnsSnapshot(
    now_ms=NOW_MS,
    listed=tuple(ListedTxn(t.transactional_id, 1, t.producer_id, t.state) for t in TXNS),
    described={t.transactional_id: t for t in TXNS},
    updated_ms={"audit": NOW_MS - DAY_MS, "gone": NOW_MS - 8 * DAY_MS, "orders-2": NOW_MS - 9 * DAY_MS},
)


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        (Filters(), ["orders-2", "orders-sink", "gone", "audit"]),
        (Filters(longer_than_ms=30_000), ["orders-2"]),
        (Filters(longer_than_ms=45_000), []),
        (Filters(id_pattern=re.compile("orders-.*")), ["orders-2", "orders-sink"]),
        (Filters(id_pattern=re.compile("orders")), []),
        # An open transaction has a process behind it, however old.
        (Filters(idle_ms=7 * DAY_MS), ["gone"]),
        (Filters(idle_ms=DAY_MS), ["gone", "audit"]),
    ],
)
def test_the_oldest_open_one_is_first_and_the_filters_hold(filters: Filters, shown: list[str]) -> None:
    found = diagnose_txns(SNAPSHOT, filters)
    assert [row.transactional_id for row in found.transactions] == shown
    assert found.total == 4


def test_only_an_open_transaction_has_an_age() -> None:
    rows = {row.transactional_id: row for row in diagnose_txns(SNAPSHOT, Filters()).transactions}
    assert (rows["orders-2"].age_ms, rows["orders-2"].timeout_share) == (45_000, 0.75)
    assert (rows["audit"].age_ms, rows["audit"].timeout_share, rows["audit"].timeout_ms) == (None, None, 60_000)


def test_an_id_that_could_not_be_described_is_listed_all_the_same() -> None:
    snapshot = TxnsSnapshot(now_ms=NOW_MS, listed=SNAPSHOT.listed, described={}, problems=("broker 1 is gone",))
    found = diagnose_txns(snapshot, Filters())
    assert {(row.transactional_id, row.producer_epoch) for row in found.transactions} >= {("orders-sink", None)}
    assert found.problems == ("broker 1 is gone",)


def test_a_description_joins_coordinator_log_and_partitions() -> None:
    snapshot = txn_snapshot(
        described(),
        history=(entry(TxnState.ONGOING, -12_000, version=2),),
        ends={ORDERS: ends(40, 90)},
        producers={ORDERS: (producer(40), producer(3, producer_id=99)), PAYMENTS: (producer(-1),)},
    )
    found = diagnose_description(snapshot)
    assert found is not None
    assert (found.age_ms, found.timeout_share, found.client_transaction_version) == (12_000, 0.2, 2)
    assert found.updated_ms == NOW_MS - 12_000
    orders, payments = found.partitions
    assert (orders.txn_start_offset, orders.last_write_ms, orders.high_watermark) == (40, NOW_MS - 11_000, 90)
    assert (payments.txn_start_offset, payments.high_watermark) == (None, None), "added, and nothing written"


def test_without_its_log_a_transaction_is_described_as_far_as_its_coordinator_knows() -> None:
    found = diagnose_description(txn_snapshot(described("Empty", partitions=(), start_ms=-1), history=None))
    assert found is not None
    assert (found.start_ms, found.age_ms, found.updated_ms, found.log_offset) == (None, None, None, None)


def test_an_unknown_id_has_no_description() -> None:
    assert diagnose_description(txn_snapshot(None)) is None
