"""The producers of a partition that its leader remembers, with their transactional ids."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.client.admin.answers import ListedTxn, NamedPartition, Producer
from fencepost.diagnose.snapshot import ProducersSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_write_ms: int | None
    idle_ms: int | None
    coordinator_epoch: int | None
    txn_start_offset: int | None
    # None: it is not transactional, or its id has expired.
    transactional_id: str | None
    state: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerList:
    now_ms: int
    producers: tuple[ProducerRow, ...]
    problems: tuple[str, ...]


def diagnose_producers(snapshot: ProducersSnapshot) -> ProducerList:
    rows = [
        _producer(where, producer, snapshot.txns.get(producer.producer_id), snapshot.now_ms)
        for where, producers in snapshot.producers.items()
        for producer in producers
    ]
    rows.sort(key=lambda row: (row.topic, row.partition, row.txn_start_offset is None, row.producer_id))
    return ProducerList(now_ms=snapshot.now_ms, producers=tuple(rows), problems=snapshot.problems)


def _producer(where: NamedPartition, producer: Producer, txn: ListedTxn | None, now_ms: int) -> ProducerRow:
    def or_none(value: int) -> int | None:
        return value if value >= 0 else None

    written_ms = or_none(producer.last_timestamp_ms)
    return ProducerRow(
        topic=where.topic,
        partition=where.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=or_none(producer.last_sequence),
        last_write_ms=written_ms,
        idle_ms=max(now_ms - written_ms, 0) if written_ms is not None else None,
        coordinator_epoch=or_none(producer.coordinator_epoch),
        txn_start_offset=or_none(producer.txn_start_offset),
        transactional_id=txn.transactional_id if txn else None,
        state=txn.state if txn else None,
    )
