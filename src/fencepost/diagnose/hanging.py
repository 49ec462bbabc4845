"""The producers that the leader of a partition remembers, and transactions that no coordinator will end (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, ListedTxn, NamedPartition, Producer
from fencepost.commands import Command, command
from fencepost.diagnose.history import id_or_none
from fencepost.diagnose.snapshot import Look, ProducersSnapshot, TxnSnapshot, age_by_record, is_open, open_txn


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTxn:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_write_ms: int
    # None: the timestamps of its records are not the time of writing.
    age_ms: int | None
    coordinator_epoch: int
    transactional_id: str | None
    why: str
    abort_command: Command

    @property
    def where(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)

    @property
    def producer(self) -> Producer:
        return Producer(
            self.producer_id, self.producer_epoch, -1, self.last_write_ms, self.coordinator_epoch, self.start_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingReport:
    now_ms: int
    hanging: tuple[HangingTxn, ...]
    partition_count: int
    # Open transactions that their coordinator knows.
    open_count: int
    # Open transactions that may or may not hang, because not all brokers answered.
    undecided_count: int
    problems: tuple[str, ...]


def diagnose_hanging(look: Look) -> HangingReport:
    """The open transactions that their coordinator does not know."""
    judged = [(where, producer, look.hangs(where, producer)) for where, producer in look.open_producers()]
    hanging = [
        _hanging(where, producer, look.txns.get(producer.producer_id), look.now_ms)
        for where, producer, hangs in judged
        if hangs
    ]
    return HangingReport(
        now_ms=look.now_ms,
        hanging=tuple(sorted(hanging, key=lambda h: (h.topic, h.partition, h.start_offset))),
        partition_count=len(look.ends),
        open_count=len({producer.producer_id for _, producer, hangs in judged if hangs is False}),
        undecided_count=sum(hangs is None for _, _, hangs in judged),
        problems=(*look.unanswered_coordinators, *look.problems),
    )


def why_it_hangs(txn: DescribedTxn | None, where: NamedPartition, producer_id: int) -> str | None:
    """Why no coordinator will write a marker for a producer's transaction on this partition; None if one will."""
    if txn is None:
        return "no transactional id has this producer id"
    if not is_open(txn.state):
        return f"`{txn.transactional_id}` has no open transaction (it is {txn.state})"
    if txn.producer_id != producer_id:
        return f"the open transaction of `{txn.transactional_id}` is of producer {txn.producer_id}"
    if where not in txn.partitions:
        return f"the open transaction of `{txn.transactional_id}` does not include the partition"
    return None


def hanging_of(snapshot: TxnSnapshot) -> tuple[HangingTxn, ...]:
    """The transactions of one transactional id that its coordinator does not know, wherever they are open.

    The collector has asked the coordinator and the leaders twice, so that one that has just begun or ended is not here.
    """
    mine = snapshot.leftovers
    return tuple(
        _hanging(where, producer, snapshot.txn, snapshot.now_ms)
        for where, producers in sorted(snapshot.producers.items())
        for producer in producers
        if open_txn(where, producer) in mine
    )


def abort_command(where: NamedPartition, producer_id: int) -> Command:
    """The command that ends a hanging transaction of this producer."""
    place = ("--topic", where.topic, "--partition", str(where.partition))
    return command("txn", "abort", *place, "--producer-id", str(producer_id))


def _hanging(where: NamedPartition, producer: Producer, txn: DescribedTxn | None, now_ms: int) -> HangingTxn:
    return HangingTxn(
        topic=where.topic,
        partition=where.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        start_offset=producer.txn_start_offset,
        last_write_ms=producer.last_timestamp_ms,
        age_ms=age_by_record(producer.last_timestamp_ms, now_ms),
        coordinator_epoch=producer.coordinator_epoch,
        transactional_id=txn.transactional_id if txn is not None else None,
        why=why_it_hangs(txn, where, producer.producer_id) or "",
        abort_command=abort_command(where, producer.producer_id),
    )


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
    written_ms = id_or_none(producer.last_timestamp_ms)
    return ProducerRow(
        topic=where.topic,
        partition=where.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=id_or_none(producer.last_sequence),
        last_write_ms=written_ms,
        idle_ms=max(now_ms - written_ms, 0) if written_ms is not None else None,
        coordinator_epoch=id_or_none(producer.coordinator_epoch),
        txn_start_offset=id_or_none(producer.txn_start_offset),
        transactional_id=txn.transactional_id if txn else None,
        state=txn.state if txn else None,
    )
