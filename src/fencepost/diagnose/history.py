"""The history of a transactional id: its records in `__transaction_state`, each with its cause.

A record has the state, but not its cause, which follows from the neighbouring records. A client of TV1 never changes
its epoch by ending a transaction. So if an abort changes the epoch, the coordinator decided it: after the timeout, or
for a new producer with the same id. With TV2 every end changes the epoch, and only the times and the next record show
the cause. Two processes with one id show, too: each registers when it finds itself fenced, and so fences the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.client.admin.orders import FENCED_BY_ORDER_MS
from fencepost.diagnose.snapshot import HistorySnapshot, LogEntry
from fencepost.diagnose.words import duration, listed
from fencepost.machines.txn.decisions import is_exhausted
from fencepost.machines.txn.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Txn,
)
from fencepost.protocol import errors
from fencepost.protocol.transaction_version import TV2

# A new producer retries until the abort is complete: milliseconds, or seconds on an overloaded cluster.
TAKEOVER_MS = 10_000


class Abort(Enum):
    """The cause of an abort, as far as the records show it."""

    CLIENT = "by its client"
    TIMEOUT = "by its coordinator, because it was open for longer than its timeout"
    TAKEOVER = "by its coordinator, because a new producer registered the id"
    ORDER = "by an operator, who fenced its producer"
    CLIENT_OR_TAKEOVER = "by its client, or by its coordinator because a new producer registered the id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    offset: int
    at_ms: int
    state: str  # `Dead`: the id has expired and was removed.
    producer_id: int | None = None
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    start_ms: int | None = None
    partitions: tuple[NamedPartition, ...] = ()
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    client_transaction_version: int | None = None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRow:
    """A request, which only Fencepost brokers remember; without a result while it is in flight."""

    at_ms: int
    name: str
    version: int
    client_id: str | None
    host: str
    port: int
    producer_id: int | None
    producer_epoch: int | None
    about: str
    result: str | None
    duration_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    transactional_id: str
    now_ms: int
    log: NamedPartition | None
    transitions: tuple[Transition, ...]
    rpcs: tuple[RpcRow, ...] | None


def diagnose_history(snapshot: HistorySnapshot, last: int | None = None) -> History:
    """`last` is the number of records, and of requests; None: all. The causes are the same with and without it."""
    since = None if last is None else -last
    return History(
        transactional_id=snapshot.transactional_id,
        now_ms=snapshot.now_ms,
        log=snapshot.log,
        transitions=transitions_of(snapshot.entries)[since:],
        rpcs=None if snapshot.rpcs is None else tuple(map(rpc_row, snapshot.rpcs[since:])),
    )


def rpc_row(rpc: Rpc) -> RpcRow:
    return RpcRow(
        at_ms=rpc.at_ms,
        name=rpc.name,
        version=rpc.version,
        client_id=rpc.client_id,
        host=rpc.host,
        port=rpc.port,
        producer_id=id_or_none(rpc.producer_id),
        producer_epoch=id_or_none(rpc.producer_epoch),
        about=rpc.about,
        result=errors.name_of(rpc.error_code) if rpc.duration_us >= 0 else None,
        duration_us=id_or_none(rpc.duration_us),
    )


def transitions_of(entries: Sequence[LogEntry]) -> tuple[Transition, ...]:
    """Each entry with its cause."""
    txns = [entry.txn for entry in entries]
    return tuple(
        _transition(entry, txns[n - 1] if n else None, next_decision(txns[n + 1 :])) for n, entry in enumerate(entries)
    )


def next_decision(txns: Sequence[Txn | None]) -> Txn | None:
    """The next record that a client or a timeout caused; Complete* follows by itself."""
    return next((txn for txn in txns if txn is None or txn.state not in (COMPLETE_COMMIT, COMPLETE_ABORT)), None)


def _transition(entry: LogEntry, before: Txn | None, after: Txn | None) -> Transition:
    txn = entry.txn
    if txn is None:
        return Transition(
            offset=entry.offset,
            at_ms=entry.timestamp_ms,
            state="Dead",
            what="removed: the id was not used for transactional.id.expiration.ms",
        )
    return Transition(
        offset=entry.offset,
        at_ms=txn.updated_ms,
        state=txn.state.kafka_name,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        timeout_ms=txn.timeout_ms,
        start_ms=txn.start_ms if txn.start_ms >= 0 else None,
        partitions=tuple(sorted(NamedPartition(*p) for p in txn.partitions)),
        previous_producer_id=id_or_none(txn.previous_producer_id),
        next_producer_id=id_or_none(txn.next_producer_id),
        client_transaction_version=int(txn.client_transaction_version),
        what=what_happened(before, txn, after),
    )


def id_or_none(number: int) -> int | None:
    """Kafka writes -1 for a missing value."""
    return number if number >= 0 else None


def what_happened(before: Txn | None, txn: Txn, after: Txn | None = None) -> str:
    """The cause of one record, given its neighbours; no record before it means that compaction has removed it."""
    if txn.state is EMPTY:
        return _registered(before, txn)
    if txn.state is ONGOING:
        return _added(before, txn)
    if txn.state is PREPARE_COMMIT:
        return f"commit decided by its client, after {_open_for(txn)}"
    if txn.state is PREPARE_ABORT:
        if before is not None and before.state in IDLE:
            return "abort by its client without an open transaction: only the epoch changes"
        return f"abort decided {why_aborted(before, txn, after).value}, after {_open_for(txn)}"
    if txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        outcome = "committed" if txn.state is COMPLETE_COMMIT else "aborted"
        if before is not None and before.state in PREPARED:
            return f"{outcome}: all markers are written, after {duration(txn.updated_ms - before.updated_ms)}"
        return f"{outcome}: all markers are written"
    return txn.state.kafka_name


def _registered(before: Txn | None, txn: Txn) -> str:
    if before is None:
        return "a producer registered (InitProducerId)"
    if before.producer_id != txn.producer_id and not is_exhausted(before.producer_epoch):
        return (
            f"the broker gave it a new id, {txn.producer_id}, because records may be lost (a power loss, or a loss "
            f"that was accepted): producers with {before.producer_id} are refused"
        )
    if before.producer_id != txn.producer_id:
        return (
            f"a producer registered (InitProducerId) and got a new id, {txn.producer_id}: "
            f"the epochs of {before.producer_id} were used up"
        )
    if before.producer_epoch == txn.producer_epoch:
        return "a producer asked for its epoch again (InitProducerId)"
    who = "an operator fenced it" if is_fenced_by_order(before, txn) else "a producer registered (InitProducerId)"
    return (
        f"{who}: epoch {before.producer_epoch} -> {txn.producer_epoch}, producers with {before.producer_epoch} or less "
        "are fenced"
    )


def is_fenced_by_order(before: Txn | None, txn: Txn) -> bool:
    """Whether an operator's order wrote this record (`fencepost txn fence` or `abort`, or the workbench)."""
    return txn.state is EMPTY and before is not None and before.timeout_ms - txn.timeout_ms == FENCED_BY_ORDER_MS


def _added(before: Txn | None, txn: Txn) -> str:
    if before is not None and before.state is ONGOING:
        added = sorted(NamedPartition(*p) for p in txn.partitions - before.partitions)
        return f"added {listed(added)}" if added else "recorded again"
    return "began" if before is not None else "open"


def why_aborted(before: Txn | None, prepared: Txn, after: Txn | None = None) -> Abort:
    """The cause of this PrepareAbort, given the record before it and the next decision after it."""
    by_epoch = before is not None and before.state is ONGOING and before.client_transaction_version < TV2
    if by_epoch and before is not None and before.producer_epoch == prepared.producer_epoch:
        return Abort.CLIENT
    open_ms = prepared.updated_ms - prepared.start_ms
    if prepared.start_ms >= 0 and open_ms > prepared.timeout_ms:
        return Abort.TIMEOUT
    registered = after if after is not None and after.state is EMPTY else None
    if by_epoch or (registered is not None and registered.updated_ms - prepared.updated_ms < TAKEOVER_MS):
        is_order = registered is not None and is_fenced_by_order(prepared, registered)
        return Abort.ORDER if is_order else Abort.TAKEOVER
    return Abort.CLIENT_OR_TAKEOVER


def _open_for(txn: Txn) -> str:
    return duration(txn.updated_ms - txn.start_ms) if txn.start_ms >= 0 else "an unknown time"


# A process that restarts does not register so often in this time: two processes fence each other.
DUEL_REGISTRATIONS = 4
DUEL_MS = 60_000
# A duel that ended earlier than this is history.
DUEL_IS_OVER_MS = 600_000


class Duel(NamedTuple):
    registrations: int
    first_ms: int
    last_ms: int


def find_duel(entries: Sequence[LogEntry], now_ms: int) -> Duel | None:
    """The duel that the records of an id show, oldest first; None if they show none, or if it is over."""
    txns = [entry.txn for entry in entries]
    times = [
        txn.updated_ms
        for before, txn in zip([None, *txns], txns, strict=False)
        if txn is not None and is_registration(before, txn)
    ]
    last = [ms for ms in times if times[-1] - ms <= DUEL_MS]
    if len(last) < DUEL_REGISTRATIONS or now_ms - last[-1] > DUEL_IS_OVER_MS:
        return None
    return Duel(len(last), last[0], last[-1])


def is_registration(before: Txn | None, txn: Txn) -> bool:
    """Whether a producer registered that may have fenced another.

    One after a commit does not count: with TV1 our sink registers before each micro-batch. Neither does the order of an
    operator.
    """
    if txn.state is not EMPTY or is_fenced_by_order(before, txn):
        return False
    return before is None or before.state is not COMPLETE_COMMIT
