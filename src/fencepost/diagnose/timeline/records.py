"""What one record of `__transaction_state` shows: its cause, the producer that caused it, and the request.

A request belongs to a record if the record was written while the request was handled. The times of both come from
brokers. A record batch has the time of its producer, so its request is found by the order of requests and batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.diagnose.history import Abort, is_fenced_by_order, is_registration, why_aborted
from fencepost.diagnose.snapshot import OFFSETS_TOPIC
from fencepost.diagnose.timeline.rounds import Recorded, SeenBatch
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

# Brokers read their clocks once for several requests, and each its own.
SLACK_MS = 20
INIT, ADD_PARTITIONS, ADD_OFFSETS, END = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"
PRODUCE, COMMIT_OFFSETS, WRITE_MARKERS = "Produce", "TxnOffsetCommit", "WriteTxnMarkers"


class Requests:
    """The remembered requests of one transactional id, oldest first, and those among them that have a step."""

    def __init__(self, rpcs: Sequence[Rpc], now_ms: int) -> None:
        self._rpcs = sorted(rpcs, key=lambda rpc: rpc.at_ms)
        self._now_ms = now_ms
        self._used: set[Rpc] = set()

    def behind_record(
        self,
        updated_ms: int,
        names: Collection[str],
        fits: Callable[[Rpc], bool] = lambda rpc: True,
        answers: Collection[int] = (errors.NONE,),
    ) -> Rpc | None:
        """The request that was handled when the record was written; `fits` says whether its contents do not differ."""
        found = [
            (self._distance_ms(rpc, updated_ms), n, rpc)
            for n, rpc in enumerate(self._rpcs)
            if rpc.name in names and fits(rpc) and (rpc.error_code in answers or rpc.duration_us < 0)
        ]
        if not found or min(found)[0] > SLACK_MS:
            return None
        rpc = min(found)[2]
        self._used.add(rpc)
        return rpc

    def behind_batches(self, where: NamedPartition, batches: Sequence[SeenBatch]) -> dict[int, Rpc]:
        """The request that wrote each batch, by the batch's base offset; the last request wrote the last batch."""
        found: dict[int, Rpc] = {}
        done = [rpc for rpc in self._rpcs if rpc.duration_us >= 0 and not rpc.error_code]
        for batch in reversed(batches):
            while done and not _wrote(done[-1], where, batch):
                done.pop()
            if done and self._done_ms(done[-1]) + SLACK_MS >= batch.header.max_timestamp:
                found[batch.header.base_offset] = rpc = done.pop()
                self._used.add(rpc)
        return found

    def rest(self, from_ms: int | None, before_ms: int | None) -> list[Rpc]:
        """The requests of this time that changed nothing: refused, repeated or not answered yet."""
        return [
            rpc
            for rpc in self._rpcs
            if rpc not in self._used
            and (from_ms is None or rpc.at_ms >= from_ms)
            and (before_ms is None or rpc.at_ms < before_ms)
        ]

    def _done_ms(self, rpc: Rpc) -> int:
        return self._now_ms if rpc.duration_us < 0 else rpc.at_ms + rpc.duration_us // 1000

    def _distance_ms(self, rpc: Rpc, at_ms: int) -> int:
        """How far a moment is from the time in which the request was handled."""
        return max(rpc.at_ms - at_ms, at_ms - self._done_ms(rpc), 0)


def _wrote(rpc: Rpc, where: NamedPartition, batch: SeenBatch) -> bool:
    if (rpc.producer_id, rpc.producer_epoch) != (batch.header.producer_id, batch.header.producer_epoch):
        return False
    if batch.offsets:
        return rpc.name == COMMIT_OFFSETS and rpc.about == f"group {batch.offsets[0].group_id}"
    return rpc.name == PRODUCE and rpc.about == str(where)


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
