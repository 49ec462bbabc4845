"""Explains an open transaction, and one that is decided but whose markers are not all written."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.client.admin.answers import DescribedTxn, NamedPartition, Producer
from fencepost.commands import command
from fencepost.counting import counted
from fencepost.diagnose.explain.findings import (
    LAST_ACTIVITY,
    NOTHING_TO_DO,
    READERS,
    WHAT_HAPPENED,
    WHAT_IS_NEXT,
    WHY,
    Action,
    Blocked,
    Cause,
    Finding,
    Findings,
    last_request,
    what_waits,
)
from fencepost.diagnose.snapshot import MARKERS_TAKE_MS, TxnSnapshot
from fencepost.diagnose.words import duration, instant, listed
from fencepost.machines.txn.states import IDLE, ONGOING, PREPARED

# Two-phase commit (KIP-939): such a transaction never times out, only its owner ends it.
NO_TIMEOUT_MS = 2**31 - 1
# A coordinator that checks timeouts every ten seconds may be late by one check, and by a slow disk.
LATE_MS = 30_000


def explain_ongoing(snapshot: TxnSnapshot, txn: DescribedTxn, blocks: Sequence[Blocked]) -> Findings:
    id_ = txn.transactional_id
    age_ms = snapshot.now_ms - txn.start_ms
    opened = (
        f"Transaction `{id_}` is open (Ongoing) for {duration(age_ms)}, since {instant(txn.start_ms)}: "
        f"producer {txn.producer_id} with epoch {txn.producer_epoch} has neither committed nor aborted it."
    )
    return Findings(
        (
            Finding(WHAT_HAPPENED, opened),
            Finding(LAST_ACTIVITY, " ".join([_last_write(snapshot, txn), *last_request(snapshot)])),
            Finding(READERS, what_waits(txn, blocks)),
            Finding(WHAT_IS_NEXT, _when_it_times_out(snapshot, txn, age_ms)),
        ),
        (
            Action(advice="if its process is alive and at work: wait for it"),
            Action(
                advice="if its process is stuck or gone: start it again; it registers the same id, which aborts the "
                "open transaction"
            ),
            Action(
                advice="to end it now: abort it, which lets the readers continue and fences its producer",
                command=command("txn", "fence", about=id_),
            ),
        ),
        (Cause.OVERDUE if _is_overdue(snapshot, txn) else Cause.OPEN,),
    )


def deadline_ms(txn: DescribedTxn) -> int | None:
    """When its coordinator aborts an open transaction; None if it never does."""
    return txn.start_ms + txn.timeout_ms if txn.start_ms >= 0 and txn.timeout_ms < NO_TIMEOUT_MS else None


def _is_overdue(snapshot: TxnSnapshot, txn: DescribedTxn) -> bool:
    deadline = deadline_ms(txn)
    late_ms = LATE_MS + (snapshot.settings.abort_check_ms or 0)
    return deadline is not None and snapshot.now_ms - deadline >= late_ms


def _last_write(snapshot: TxnSnapshot, txn: DescribedTxn) -> str:
    writes = [(p.last_timestamp_ms, where) for where, p in _own(snapshot, txn) if p.txn_start_offset >= 0]
    if not writes:
        its = counted(len(txn.partitions), "partition")
        return f"A moment later, nothing of it was open on its {its}: it has not written yet, or has ended."
    last_ms, where = max(writes)
    return f"It last wrote {duration(snapshot.now_ms - last_ms)} ago, to {where}."


def _own(snapshot: TxnSnapshot, txn: DescribedTxn) -> list[tuple[NamedPartition, Producer]]:
    return [
        (where, p)
        for where in txn.partitions
        for p in snapshot.producers.get(where, ())
        if p.producer_id == txn.producer_id
    ]


def _when_it_times_out(snapshot: TxnSnapshot, txn: DescribedTxn, age_ms: int) -> str:
    if txn.timeout_ms >= NO_TIMEOUT_MS:
        return "It has no timeout (two-phase commit): only its owner ends it."
    left_ms = txn.timeout_ms - age_ms
    every = snapshot.settings.abort_check_ms
    checks = f", and the coordinator checks timeouts every {duration(every)}" if every is not None else ""
    if left_ms > 0:
        return (
            f"Unless its producer ends it, broker {txn.coordinator} aborts it in {duration(left_ms)}: "
            f"its timeout is {duration(txn.timeout_ms)}{checks}."
        )
    if not _is_overdue(snapshot, txn):
        return f"Its timeout of {duration(txn.timeout_ms)} has passed{checks}: it is about to be aborted."
    return (
        f"Its timeout of {duration(txn.timeout_ms)} passed {duration(-left_ms)} ago, but its coordinator, broker "
        f"{txn.coordinator}, has not aborted it; look for the reason in the log of that broker."
    )


def explain_decided(snapshot: TxnSnapshot, txn: DescribedTxn, blocks: Sequence[Blocked]) -> Findings:
    decided_ms = _decided_ms(snapshot)
    age_ms = snapshot.now_ms - decided_ms if decided_ms is not None else None
    since = f" {duration(age_ms)} ago" if age_ms is not None else ""
    outcome = "committed" if txn.state == "PrepareCommit" else "aborted"
    what = (
        f"Transaction `{txn.transactional_id}` was decided{since}: it is going to be {outcome} ({txn.state}), and this "
        "cannot be changed."
    )
    if _is_complete_by_now(snapshot):
        why, actions = "Its coordinator has written the markers in the meantime: it is complete.", [NOTHING_TO_DO]
    else:
        why, actions = _why_markers_are_missing(snapshot, txn, age_ms)
    findings = [Finding(WHAT_HAPPENED, what), Finding(WHY, why)]
    if blocks:
        findings.append(Finding(READERS, what_waits(txn, blocks)))
    is_stuck = age_ms is not None and age_ms >= MARKERS_TAKE_MS and not _is_complete_by_now(snapshot)
    cause = Cause.MARKERS_MISSING if is_stuck else Cause.MARKERS_UNDER_WAY
    return Findings(tuple(findings), tuple(actions), (cause,))


def _why_markers_are_missing(snapshot: TxnSnapshot, txn: DescribedTxn, age_ms: int | None) -> tuple[str, list[Action]]:
    places = f" on {listed(txn.partitions)}" if txn.partitions else ""
    why = f"Its coordinator, broker {txn.coordinator}, still has to write markers{places}."
    if age_ms is not None and age_ms < MARKERS_TAKE_MS:
        return why, [Action(advice="wait: markers take milliseconds")]
    silent = [where for where in txn.partitions if where not in snapshot.ends]
    look = f"look at {listed(silent)}, whose leader did not answer" if silent else "look at these partitions"
    actions = [
        Action(advice=f"{look}; the coordinator writes the markers by itself as soon as it can"),
        Action(
            advice="do not fence it: until the markers are written, a new producer with this id receives "
            "CONCURRENT_TRANSACTIONS"
        ),
    ]
    causes = "a partition without a leader, with too few replicas in sync, or on a full disk"
    if age_ms is not None:
        return f"{why} Markers take milliseconds, so something prevents them: {causes}.", actions
    # Apache Kafka answers EndTxn in this state, so for some milliseconds it is normal.
    patience = Action(advice="ask again in a few seconds, and continue only if it is still in this state")
    return f"{why} Markers take milliseconds. If it is still in this state later, the cause is {causes}.", [
        patience,
        *actions,
    ]


def _decided_ms(snapshot: TxnSnapshot) -> int | None:
    """When the decision was recorded; None if the log does not show it. PrepareEpochFence is never logged."""
    records = [entry.txn for entry in snapshot.history or () if entry.txn is not None]
    if not records or records[-1].state is ONGOING:
        return None
    return next((txn.updated_ms for txn in reversed(records) if txn.state in PREPARED), None)


def _is_complete_by_now(snapshot: TxnSnapshot) -> bool:
    """The log is read after the coordinator was asked, and may show the end of the transaction."""
    latest = snapshot.latest
    return latest is not None and latest.state in IDLE
