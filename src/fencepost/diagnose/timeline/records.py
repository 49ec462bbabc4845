"""What one record of `__transaction_state` shows: its cause, the producer that caused it, and the request."""

from __future__ import annotations

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.diagnose.duels import is_registration
from fencepost.diagnose.history import Abort, is_fenced_by_order, why_aborted
from fencepost.diagnose.snapshot import OFFSETS_TOPIC
from fencepost.diagnose.timeline.requests import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END,
    INIT,
    PRODUCE,
    Requests,
)
from fencepost.diagnose.timeline.rounds import Recorded
from fencepost.diagnose.timeline.steps import Look
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

# The request behind both is the registration.
REGISTERED = (Abort.TAKEOVER, Abort.ORDER)
LOOKS = {
    ONGOING: Look.OPEN,
    PREPARE_COMMIT: Look.COMMITTED,
    COMPLETE_COMMIT: Look.COMMITTED,
    PREPARE_ABORT: Look.ABORTED,
    COMPLETE_ABORT: Look.ABORTED,
}


def why_it_aborts(record: Recorded) -> Abort | None:
    """Why the record aborts a transaction; None if it does not, or if none was open."""
    txn, before = record.txn, record.before
    if txn is None or txn.state is not PREPARE_ABORT or (before is not None and before.state in IDLE):
        return None
    return why_aborted(before, txn, record.after)


def is_order(record: Recorded) -> bool:
    """Whether an operator's order caused the record."""
    txn = record.txn
    if txn is None:
        return False
    return why_it_aborts(record) is Abort.ORDER or is_fenced_by_order(record.before, txn)


def look_of(record: Recorded) -> Look:
    txn, before = record.txn, record.before
    if txn is None:
        return Look.PLAIN
    if is_order(record):
        return Look.FENCED
    if txn.state is EMPTY:
        fences = before is not None and before.producer_epoch != txn.producer_epoch and is_registration(before, txn)
        return Look.TAKEOVER if fences else Look.PLAIN
    by_cause = {Abort.TIMEOUT: Look.TIMEOUT, Abort.TAKEOVER: Look.TAKEOVER}
    cause = why_it_aborts(record)
    return by_cause[cause] if cause in by_cause else LOOKS.get(txn.state, Look.PLAIN)


def added_by(record: Recorded) -> frozenset[NamedPartition]:
    """The partitions that were not in the transaction before."""
    txn, before = record.txn, record.before
    if txn is None or txn.state is not ONGOING:
        return frozenset()
    known = before.partitions if before is not None and before.state is ONGOING else frozenset()
    return frozenset(NamedPartition(*p) for p in txn.partitions - known)


def implied_request(record: Recorded) -> str | None:
    """The request that caused the record, as the record and its neighbours show it; None: none, or it is unknown."""
    txn, cause = record.txn, why_it_aborts(record)
    if txn is None or txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        return None
    if txn.state is EMPTY or cause in REGISTERED:
        return INIT
    if txn.state is ONGOING:
        adds_offsets = _adds_offsets(record)
        if txn.client_transaction_version >= TV2:
            return COMMIT_OFFSETS if adds_offsets else PRODUCE
        return ADD_OFFSETS if adds_offsets else ADD_PARTITIONS
    return None if cause in (Abort.TIMEOUT, Abort.CLIENT_OR_TAKEOVER) else END


def request_behind(record: Recorded, requests: Requests) -> Rpc | None:
    """The request that caused the record, if the brokers remember it."""
    txn, cause = record.txn, why_it_aborts(record)
    if txn is None or cause is Abort.TIMEOUT or txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        return None
    if txn.state is EMPTY:
        return requests.behind_record(txn.updated_ms, {INIT})
    if cause in REGISTERED:
        # The coordinator answers with an error while it writes the markers of the abort.
        return requests.behind_record(txn.updated_ms, {INIT}, answers=(errors.NONE, errors.CONCURRENT_TRANSACTIONS))
    if txn.state in PREPARED:
        asked = "commit" if txn.state is PREPARE_COMMIT else "abort"
        return requests.behind_record(txn.updated_ms, {END}, lambda rpc: rpc.about == asked)
    names = {implied_request(record) or ""}
    if _adds_offsets(record):
        return requests.behind_record(txn.updated_ms, names)
    added = {str(where) for where in added_by(record)}
    return requests.behind_record(txn.updated_ms, names, lambda rpc: bool(added & set(rpc.about.split(", "))))


def sent_by(record: Recorded, rpc: Rpc | None) -> Txn | None:
    """A record with the producer id and the epoch of the sender; None if the coordinator acted by itself."""
    txn, cause = record.txn, why_it_aborts(record)
    if txn is None or cause is Abort.TIMEOUT or txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        return None
    if cause in REGISTERED:
        # The record of the new producer's registration.
        return record.after if record.after is not None and record.after.state is EMPTY else None
    if cause is Abort.CLIENT_OR_TAKEOVER and rpc is None:
        return None
    # With TV2 the record of a decision has the next epoch already.
    return record.before if txn.state in PREPARED and record.before is not None else txn


def _adds_offsets(record: Recorded) -> bool:
    added = added_by(record)
    return bool(added) and all(where.topic == OFFSETS_TOPIC for where in added)
