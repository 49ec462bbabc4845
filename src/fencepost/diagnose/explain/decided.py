"""Explains a transaction that is decided, but whose markers are not all written."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.client.admin.answers import DescribedTxn
from fencepost.diagnose.explain.findings import (
    NOTHING_TO_DO,
    READERS,
    WHAT_HAPPENED,
    WHY,
    Action,
    Cause,
    Finding,
    Findings,
)
from fencepost.diagnose.explain.readers import Blocked, what_waits
from fencepost.diagnose.snapshot import MARKERS_TAKE_MS, TxnSnapshot
from fencepost.diagnose.words import duration, listed
from fencepost.machines.txn.states import IDLE, ONGOING, PREPARED


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
