"""What was seen of a cluster at one moment: plain values, collected once and then only read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.admin.answers import DescribedTxn, ListedTxn, NamedPartition, Producer, Rpc
from fencepost.machines.txn.decisions import BY_KAFKA_NAME, IDLE, ONGOING, Txn

OFFSETS_TOPIC = "__consumer_offsets"
TXN_TOPIC = "__transaction_state"
A_YEAR_MS = 365 * 86_400_000
MAX_SKEW_MS = 3_600_000
# Markers take milliseconds on a healthy cluster.
MARKERS_TAKE_MS = 5_000
CLOSED_STATES = frozenset(name for name, state in BY_KAFKA_NAME.items() if state in IDLE)


def is_open(state: str) -> bool:
    """Whether there is a transaction to end; a state that we do not know yet counts as one."""
    return state not in CLOSED_STATES


def is_decided(state: str) -> bool:
    """Whether a transaction is going to be committed or aborted, and its markers are not all written yet."""
    return is_open(state) and state != ONGOING.kafka_name


def is_coordinated(txn: DescribedTxn | None, where: NamedPartition) -> bool:
    """Whether a coordinator will end the transaction on this partition, sooner or later."""
    return txn is not None and is_open(txn.state) and where in txn.partitions


class OpenTxn(NamedTuple):
    """A transaction that is open on a partition; equal in two answers of the leader if it stayed open in between."""

    where: NamedPartition
    producer_id: int
    producer_epoch: int
    start_offset: int


def uncoordinated(
    producers: Mapping[NamedPartition, tuple[Producer, ...]], txns: Mapping[int, DescribedTxn]
) -> set[OpenTxn]:
    """The transactions that are open on partitions and that, according to `txns`, no coordinator will end."""
    return {
        OpenTxn(where, p.producer_id, p.producer_epoch, p.txn_start_offset)
        for where, found in producers.items()
        for p in found
        if p.txn_start_offset >= 0 and not is_coordinated(txns.get(p.producer_id), where)
    }


def without(
    producers: Mapping[NamedPartition, tuple[Producer, ...]], ended: Set[OpenTxn]
) -> dict[NamedPartition, tuple[Producer, ...]]:
    """The producers, except those of the transactions in `ended`."""
    return {
        where: tuple(
            p for p in found if OpenTxn(where, p.producer_id, p.producer_epoch, p.txn_start_offset) not in ended
        )
        for where, found in producers.items()
    }


def first_open(producers: Iterable[Producer]) -> Producer | None:
    """The producer whose open transaction begins first: the one that pins the last stable offset."""
    open_ = [p for p in producers if p.txn_start_offset >= 0]
    return min(open_, key=lambda p: p.txn_start_offset, default=None)


def age_by_record(timestamp_ms: int, now_ms: int) -> int | None:
    """How long ago a record was written, as far as its timestamp tells; None where that is another time.

    Producers choose timestamps, so it may be the time of the event: of years ago, or in other units, and thus ahead.
    """
    if timestamp_ms < 0 or not -MAX_SKEW_MS <= now_ms - timestamp_ms <= A_YEAR_MS:
        return None
    return max(now_ms - timestamp_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """How far a partition reaches: for everybody, and for read_committed."""

    high_watermark: int
    last_stable_offset: int

    @property
    def gap(self) -> int:
        return self.high_watermark - self.last_stable_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnsSnapshot:
    """All transactional ids of a cluster."""

    now_ms: int
    listed: tuple[ListedTxn, ...]
    described: Mapping[str, DescribedTxn]
    # When each was last written to its log; None if the log was not read.
    updated_ms: Mapping[str, int] | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LsoSnapshot:
    """Partitions, and for those whose last stable offset is behind, who is behind it."""

    now_ms: int
    ends: Mapping[NamedPartition, Ends]
    producers: Mapping[NamedPartition, tuple[Producer, ...]] = field(default_factory=dict)
    # The transactions of these producers, by producer id.
    txns: Mapping[int, DescribedTxn] = field(default_factory=dict)
    # When the first record at the last stable offset was made, where no coordinator could tell.
    first_record_ms: Mapping[NamedPartition, int] = field(default_factory=dict)
    # The last requests of these transactions; empty on a cluster that does not remember them.
    rpcs: Mapping[str, tuple[Rpc, ...]] = field(default_factory=dict)
    # Coordinators that could not be asked: one of them may know a producer that nobody else knows.
    unanswered_coordinators: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingSnapshot:
    """The same partitions, looked at before and after their coordinators were asked.

    A coordinator names a partition from before its first write until its marker is written. So what it did not name,
    and what was open on the partition both before and after, is nothing that it will ever end.
    """

    now_ms: int
    partition_count: int
    before: Mapping[NamedPartition, tuple[Producer, ...]]
    txns: Mapping[int, DescribedTxn]
    after: Mapping[NamedPartition, tuple[Producer, ...]]
    # Coordinators that could not be asked: then nothing can be said of producers that nobody knows.
    unanswered_coordinators: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersSnapshot:
    """The producers of some partitions, and what their coordinators call them."""

    now_ms: int
    producers: Mapping[NamedPartition, tuple[Producer, ...]]
    txns: Mapping[int, ListedTxn]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One record of `__transaction_state`; no Txn is a tombstone."""

    offset: int
    timestamp_ms: int
    txn: Txn | None


def leftovers(
    producers: Mapping[NamedPartition, tuple[Producer, ...]], txn: DescribedTxn | None, history: Iterable[LogEntry]
) -> set[OpenTxn]:
    """What is open under the producer ids of a transactional id without being part of its open transaction."""
    if txn is None:
        return set()
    ids = {txn.producer_id} | {entry.txn.producer_id for entry in history if entry.txn is not None}
    found = uncoordinated(producers, dict.fromkeys(ids, txn))
    return {open_ for open_ in found if open_.producer_id in ids}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySnapshot:
    now_ms: int
    transactional_id: str
    # None: the cluster has had no transaction yet.
    log: NamedPartition | None
    entries: tuple[LogEntry, ...]
    # Its last requests; None on a cluster that does not remember them, or if nobody asked.
    rpcs: tuple[Rpc, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the cluster that decide when it ends a transaction by itself; None where it does not say."""

    max_timeout_ms: int | None = None
    abort_check_ms: int | None = None
    expiration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnSnapshot:
    """One transactional id, from every side."""

    now_ms: int
    transactional_id: str
    coordinator: int
    txn: DescribedTxn | None
    # What is left of its log, oldest first; None where it could not be read.
    history: tuple[LogEntry, ...] | None = None
    # The partitions that it names now or named in its log, as their leaders see them.
    ends: Mapping[NamedPartition, Ends] = field(default_factory=dict)
    producers: Mapping[NamedPartition, tuple[Producer, ...]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    # Its last requests; None on a cluster that does not remember them.
    rpcs: tuple[Rpc, ...] | None = None
    # Where the id is unknown: others that look like it.
    similar: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
