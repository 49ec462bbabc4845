"""The transactions of a cluster as a list, and one of them with every field."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, ListedTxn, NamedPartition
from fencepost.diagnose.snapshot import TxnSnapshot, TxnsSnapshot, is_open


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which transactions to list; the cluster itself filters by state and producer id."""

    longer_than_ms: int | None = None
    idle_ms: int | None = None
    id_pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnRow:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int | None
    coordinator: int
    partition_count: int
    # How long the transaction is open, also as a share of its timeout; None if none is open.
    age_ms: int | None
    timeout_ms: int | None
    timeout_share: float | None
    # The time since its last record; None unless the log was read.
    idle_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnList:
    now_ms: int
    transactions: tuple[TxnRow, ...]
    # Before the filters.
    total: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    topic: str
    partition: int
    high_watermark: int | None
    last_stable_offset: int | None
    # None if the transaction has written nothing to the partition.
    txn_start_offset: int | None
    last_write_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnDescription:
    now_ms: int
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    age_ms: int | None
    timeout_share: float | None
    partitions: tuple[PartitionRow, ...]
    # From the last record in the log; None if the log could not be read.
    updated_ms: int | None
    previous_producer_id: int | None
    next_producer_id: int | None
    client_transaction_version: int | None
    log_offset: int | None
    problems: tuple[str, ...]


def age_of(txn: DescribedTxn, now_ms: int) -> int | None:
    """How long a transaction is open; None if none is open."""
    return max(now_ms - txn.start_ms, 0) if is_open(txn.state) and txn.start_ms >= 0 else None


def share_of_timeout(txn: DescribedTxn, now_ms: int) -> float | None:
    age_ms = age_of(txn, now_ms)
    return age_ms / txn.timeout_ms if age_ms is not None and txn.timeout_ms > 0 else None


def diagnose_txns(snapshot: TxnsSnapshot, filters: Filters) -> TxnList:
    """The transactions that pass the filters: open ones first, the oldest of them at the top."""
    rows = [_row(txn, snapshot) for txn in snapshot.listed]
    kept = [row for row in rows if _passes(row, filters)]
    kept.sort(key=lambda row: (row.age_ms is None, -(row.age_ms or 0), -(row.idle_ms or 0), row.transactional_id))
    return TxnList(now_ms=snapshot.now_ms, transactions=tuple(kept), total=len(rows), problems=snapshot.problems)


def _row(listed: ListedTxn, snapshot: TxnsSnapshot) -> TxnRow:
    txn = snapshot.described.get(listed.transactional_id)
    updated_ms = (snapshot.updated_ms or {}).get(listed.transactional_id)
    return TxnRow(
        transactional_id=listed.transactional_id,
        state=txn.state if txn else listed.state,
        producer_id=txn.producer_id if txn else listed.producer_id,
        producer_epoch=txn.producer_epoch if txn else None,
        coordinator=listed.coordinator,
        partition_count=len(txn.partitions) if txn else 0,
        age_ms=age_of(txn, snapshot.now_ms) if txn else None,
        timeout_ms=txn.timeout_ms if txn else None,
        timeout_share=share_of_timeout(txn, snapshot.now_ms) if txn else None,
        idle_ms=max(snapshot.now_ms - updated_ms, 0) if updated_ms is not None else None,
    )


def _passes(row: TxnRow, filters: Filters) -> bool:
    if filters.id_pattern is not None and not filters.id_pattern.fullmatch(row.transactional_id):
        return False
    if filters.longer_than_ms is not None and (row.age_ms is None or row.age_ms <= filters.longer_than_ms):
        return False
    if filters.idle_ms is None:
        return True
    return not is_open(row.state) and row.idle_ms is not None and row.idle_ms >= filters.idle_ms


def diagnose_description(snapshot: TxnSnapshot) -> TxnDescription | None:
    """Every field; None for an id that the cluster does not know."""
    txn = snapshot.txn
    if txn is None:
        return None
    latest = snapshot.history[-1] if snapshot.history else None
    record = latest.txn if latest else None
    return TxnDescription(
        now_ms=snapshot.now_ms,
        transactional_id=txn.transactional_id,
        coordinator=txn.coordinator,
        state=txn.state,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        timeout_ms=txn.timeout_ms,
        start_ms=txn.start_ms if txn.start_ms >= 0 else None,
        age_ms=age_of(txn, snapshot.now_ms),
        timeout_share=share_of_timeout(txn, snapshot.now_ms),
        partitions=tuple(_partition(snapshot, where, txn.producer_id) for where in txn.partitions),
        updated_ms=record.updated_ms if record else None,
        previous_producer_id=record.previous_producer_id if record and record.previous_producer_id >= 0 else None,
        next_producer_id=record.next_producer_id if record and record.next_producer_id >= 0 else None,
        client_transaction_version=int(record.client_transaction_version) if record else None,
        log_offset=latest.offset if latest else None,
        problems=snapshot.problems,
    )


def _partition(snapshot: TxnSnapshot, where: NamedPartition, producer_id: int) -> PartitionRow:
    ends = snapshot.ends.get(where)
    mine = [p for p in snapshot.producers.get(where, ()) if p.producer_id == producer_id]
    open_ = [p for p in mine if p.txn_start_offset >= 0]
    return PartitionRow(
        topic=where.topic,
        partition=where.partition,
        high_watermark=ends.high_watermark if ends else None,
        last_stable_offset=ends.last_stable_offset if ends else None,
        txn_start_offset=open_[0].txn_start_offset if open_ else None,
        last_write_ms=open_[0].last_timestamp_ms if open_ else None,
    )
