"""Snapshots made by hand: one transactional id, `orders-sink`, at one moment."""

from __future__ import annotations

from typing import Any

from fencepost.client.admin.answers import DescribedTxn, NamedPartition, Producer, Rpc
from fencepost.diagnose.snapshot import Ends, LogEntry, TxnSnapshot
from fencepost.machines.txn.states import Txn, TxnState

NOW_MS = 1_800_000_000_000
ORDERS = NamedPartition("orders", 0)
PAYMENTS = NamedPartition("payments", 3)
GROUP_OFFSETS = NamedPartition("__consumer_offsets", 12)


def described(state: str = "Ongoing", **changes: Any) -> DescribedTxn:
    """An open transaction of a minute's timeout, begun 12 s ago."""
    txn = DescribedTxn("orders-sink", 1, state, 7, 4, 60_000, NOW_MS - 12_000, (ORDERS, PAYMENTS))
    return txn._replace(**changes)


def producer(txn_start_offset: int = 40, **changes: Any) -> Producer:
    return Producer(7, 4, 9, NOW_MS - 11_000, 0, txn_start_offset)._replace(**changes)


def rpc(name: str = "Produce", ago_ms: int = 3000, **changes: Any) -> Rpc:
    seen = Rpc(NOW_MS - ago_ms, name, 9, "shop", "10.0.0.9", 40_000, 7, 4, "orders-0", 0, 500)
    return seen._replace(**changes)


def ends(last_stable_offset: int, high_watermark: int) -> Ends:
    return Ends(last_stable_offset=last_stable_offset, high_watermark=high_watermark)


def entry(state: TxnState, at_ms: int, **changes: Any) -> LogEntry:
    """A record of `orders-sink`; `at_ms` counts from NOW_MS."""
    start_ms = changes.pop("start_ms", at_ms if state is TxnState.ONGOING else None)
    txn = Txn(
        transactional_id="orders-sink",
        producer_id=changes.pop("producer_id", 7),
        producer_epoch=changes.pop("epoch", 4),
        timeout_ms=changes.pop("timeout_ms", 60_000),
        state=state,
        partitions=frozenset(changes.pop("partitions", {("orders", 0)} if state in (1, 2, 3) else set())),
        start_ms=-1 if start_ms is None else NOW_MS + start_ms,
        updated_ms=NOW_MS + at_ms,
        previous_producer_id=changes.pop("previous_producer_id", 7),
        client_transaction_version=changes.pop("version", 0),
    )
    assert not changes
    return LogEntry(offset=1_000_000 + at_ms, timestamp_ms=NOW_MS + at_ms, txn=txn)


def txn_snapshot(txn: DescribedTxn | None, **changes: Any) -> TxnSnapshot:
    fields: dict[str, Any] = {
        "now_ms": NOW_MS,
        "transactional_id": "orders-sink",
        "coordinator": 1,
        "txn": txn,
        "history": (),
    }
    return TxnSnapshot(**fields | changes)
