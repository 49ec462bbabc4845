"""The answers of a cluster at one moment: plain values, which `collect/` makes and the other modules only read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.admin.answers import DescribedTxn, ListedTxn, NamedPartition, Producer, Rpc
from fencepost.client.admin.groups import GroupMembership, GroupOffsets, ListedGroup
from fencepost.machines.txn.states import BY_KAFKA_NAME, IDLE, ONGOING, Txn

OFFSETS_TOPIC = "__consumer_offsets"
TXN_TOPIC = "__transaction_state"
A_YEAR_MS = 365 * 86_400_000
MAX_SKEW_MS = 3_600_000
# Markers take milliseconds on a healthy cluster.
MARKERS_TAKE_MS = 5_000
CLOSED_STATES = frozenset(name for name, state in BY_KAFKA_NAME.items() if state in IDLE)


def is_open(state: str) -> bool:
    """Whether a transaction is open; a state that this version does not know counts as open."""
    return state not in CLOSED_STATES


def is_decided(state: str) -> bool:
    """Whether a transaction is going to be committed or aborted, and its markers are not all written yet."""
    return is_open(state) and state != ONGOING.kafka_name


def is_coordinated(txn: DescribedTxn | None, where: NamedPartition) -> bool:
    """Whether a coordinator will end the transaction on this partition."""
    return txn is not None and is_open(txn.state) and where in txn.partitions


def is_out_of_sight(txn: DescribedTxn) -> bool:
    """Whether a transaction is open on partitions that this user may not see: the coordinator leaves them out."""
    return txn.state == ONGOING.kafka_name and not txn.partitions


class OpenTxn(NamedTuple):
    """A transaction that is open on a partition; equal in two answers of the leader if it stayed open in between."""

    where: NamedPartition
    producer_id: int
    producer_epoch: int
    start_offset: int


def open_txn(where: NamedPartition, producer: Producer) -> OpenTxn:
    return OpenTxn(where, producer.producer_id, producer.producer_epoch, producer.txn_start_offset)


def uncoordinated(
    producers: Mapping[NamedPartition, tuple[Producer, ...]], txns: Mapping[int, DescribedTxn]
) -> set[OpenTxn]:
    """The transactions that are open on partitions and that, according to `txns`, no coordinator will end."""
    return {
        open_txn(where, p)
        for where, found in producers.items()
        for p in found
        if p.txn_start_offset >= 0 and not is_coordinated(txns.get(p.producer_id), where)
    }


def settled(
    suspects: Set[OpenTxn], again: Mapping[NamedPartition, tuple[Producer, ...]], txns: Mapping[int, DescribedTxn]
) -> set[OpenTxn]:
    """The suspects that a second answer of their leaders clears: they have ended, or `txns` has a coordinator for them.

    The leader of a partition and the coordinator are asked one after the other. The coordinator may have written the
    markers in between, or a new transaction may have begun.
    """
    return {suspect for suspect in suspects if suspect.where in again} - uncoordinated(again, txns)


def without(
    producers: Mapping[NamedPartition, tuple[Producer, ...]], ended: Set[OpenTxn]
) -> dict[NamedPartition, tuple[Producer, ...]]:
    """The producers, except those of the transactions in `ended`."""
    return {where: tuple(p for p in found if open_txn(where, p) not in ended) for where, found in producers.items()}


def first_open(producers: Iterable[Producer]) -> Producer | None:
    """The producer whose open transaction begins first: the one that pins the last stable offset."""
    open_ = [p for p in producers if p.txn_start_offset >= 0]
    return min(open_, key=lambda p: p.txn_start_offset, default=None)


def age_by_record(timestamp_ms: int, now_ms: int) -> int | None:
    """How long ago a record was written, by its timestamp; None if that is not the time of writing.

    Producers choose the timestamps, which may be years old or, in another unit, in the future.
    """
    if timestamp_ms < 0 or not -MAX_SKEW_MS <= now_ms - timestamp_ms <= A_YEAR_MS:
        return None
    return max(now_ms - timestamp_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The ends of a partition for both isolation levels."""

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
    # The time of the last record of each id; None if the log was not read.
    updated_ms: Mapping[str, int] | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Some partitions at one moment: how far readers get, what is open there, and which coordinators know of it.

    A coordinator lists a partition from before the first write until its marker is written. If a transaction was open
    on a partition before and after the coordinators were asked, and none of them lists it, it will never end by itself.
    """

    now_ms: int
    ends: Mapping[NamedPartition, Ends]
    # The producers of the partitions where readers wait, without transactions that ended during the look.
    producers: Mapping[NamedPartition, tuple[Producer, ...]] = field(default_factory=dict)
    # Partitions whose producers this user may not see.
    denied: Set[NamedPartition] = frozenset()
    # The transactions of these producers, by producer id.
    txns: Mapping[int, DescribedTxn] = field(default_factory=dict)
    # Partitions whose leaders did not answer again, after the coordinators.
    unconfirmed: Set[NamedPartition] = frozenset()
    # Coordinators that did not answer, and ids that this user may not see: a producer without an owner may have one.
    unanswered_coordinators: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    # The rest is there if it was asked for (`waits_of`): what there is to know about the transactions that readers wait
    # for. First the timestamp at the last stable offset, for transactions that no coordinator knows.
    first_record_ms: Mapping[NamedPartition, int] = field(default_factory=dict)
    # The last requests of these transactions; empty if the brokers do not remember requests.
    rpcs: Mapping[str, tuple[Rpc, ...]] = field(default_factory=dict)
    # The offsets of consumer groups on the partitions where readers wait, and offsets in transactions.
    groups: Mapping[str, GroupOffsets] = field(default_factory=dict)
    # Gaps in the answers about groups. The rest of the look holds without them, so they are not problems.
    warnings: tuple[str, ...] = ()

    @property
    def unseen(self) -> list[NamedPartition]:
        """The partitions where readers wait for a transaction that cannot be found out."""
        return sorted(where for where, ends in self.ends.items() if ends.gap > 0 and where not in self.producers)

    def hangs(self, where: NamedPartition, producer: Producer) -> bool | None:
        """Whether no coordinator will end the open transaction of a producer; None: not every broker answered."""
        txn = self.txns.get(producer.producer_id)
        if is_coordinated(txn, where):
            return False
        if where in self.unconfirmed or (txn is None and self.unanswered_coordinators):
            return None
        return True

    def open_producers(self) -> Iterator[tuple[NamedPartition, Producer]]:
        for where, found in self.producers.items():
            yield from ((where, producer) for producer in found if producer.txn_start_offset >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersSnapshot:
    """The producers of some partitions, and their transactional ids."""

    now_ms: int
    producers: Mapping[NamedPartition, tuple[Producer, ...]]
    txns: Mapping[int, ListedTxn]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One record of `__transaction_state`; without a Txn it is a tombstone."""

    offset: int
    timestamp_ms: int
    txn: Txn | None


def producer_ids_of(txn: DescribedTxn | None, history: Iterable[LogEntry]) -> set[int]:
    """The producer ids that a transactional id has and had, as far as its log still shows them."""
    ids = {txn.producer_id} if txn is not None else set()
    for entry in history:
        if entry.txn is not None:
            ids |= {entry.txn.producer_id, entry.txn.previous_producer_id}
    return {id_ for id_ in ids if id_ >= 0}


def by_producer(producer_ids: Iterable[int], txn: DescribedTxn | None) -> dict[int, DescribedTxn]:
    """What the coordinator of a transactional id says of the producer ids that it has and had.

    Its open transaction is of the present one: what an earlier one left on a partition is not part of it.
    """
    if txn is None:
        return {}
    return {id_: txn if id_ == txn.producer_id else txn._replace(partitions=()) for id_ in producer_ids}


def leftovers(
    producers: Mapping[NamedPartition, tuple[Producer, ...]], txn: DescribedTxn | None, history: Iterable[LogEntry]
) -> set[OpenTxn]:
    """Transactions that are open under the producer ids of a transactional id and not part of its open transaction."""
    ids = producer_ids_of(txn, history)
    found = uncoordinated(producers, by_producer(ids, txn))
    return {open_ for open_ in found if open_.producer_id in ids}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySnapshot:
    now_ms: int
    transactional_id: str
    # None: the cluster has had no transaction yet.
    log: NamedPartition | None
    entries: tuple[LogEntry, ...]
    # Its last requests; None if the brokers do not remember requests, or were not asked.
    rpcs: tuple[Rpc, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings that decide when the cluster ends a transaction by itself; None if the broker does not show them."""

    max_timeout_ms: int | None = None
    abort_check_ms: int | None = None
    expiration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnSnapshot:
    """One transactional id, as its coordinator, the log and the leaders of its partitions know it."""

    now_ms: int
    transactional_id: str
    # None: the cluster has had no transaction yet.
    coordinator: int | None
    txn: DescribedTxn | None
    # Its records in the log, oldest first; None if the log could not be read.
    history: tuple[LogEntry, ...] | None = None
    # The partitions of its open transaction and of those in the log; if the whole cluster was searched, all partitions.
    ends: Mapping[NamedPartition, Ends] = field(default_factory=dict)
    # The same partitions; of the others in the cluster, those where readers wait.
    producers: Mapping[NamedPartition, tuple[Producer, ...]] = field(default_factory=dict)
    # Transactions whose producer id no coordinator knows: one of them may be of an earlier producer of this id, whose
    # records are no longer among those that were read.
    nameless: tuple[OpenTxn, ...] = ()
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    # Its last requests; None if the brokers do not remember requests.
    rpcs: tuple[Rpc, ...] | None = None
    # If the id is unknown: ids that look like it.
    similar: tuple[str, ...] = ()
    # The offsets of consumer groups on the partitions that it holds, and offsets in transactions.
    groups: Mapping[str, GroupOffsets] = field(default_factory=dict)
    # Gaps in the answers about groups. The rest of the snapshot holds without them, so they are not problems.
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def latest(self) -> Txn | None:
        """The last record in the log; None if it is a tombstone, or if there is none."""
        return self.history[-1].txn if self.history else None

    @property
    def producer_ids(self) -> set[int]:
        return producer_ids_of(self.txn, self.history or ())

    @property
    def leftovers(self) -> set[OpenTxn]:
        """The transactions of this id that are open on partitions and that its coordinator does not know."""
        return leftovers(self.producers, self.txn, self.history or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSnapshot:
    """All consumer groups of a cluster with their offsets, and the ends of the partitions that they read."""

    now_ms: int
    listed: tuple[ListedGroup, ...]
    offsets: Mapping[str, GroupOffsets]
    ends: Mapping[NamedPartition, Ends]
    left_out: int = 0  # Groups of the Spark sink's notes.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One consumer group with its members and offsets, and the partitions that it reads."""

    group: ListedGroup
    described: GroupMembership | None
    offsets: GroupOffsets
    lso: Look
    problems: tuple[str, ...] = ()
