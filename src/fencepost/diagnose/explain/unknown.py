"""Explains an id that its coordinator does not know."""

from __future__ import annotations

from fencepost.commands import command
from fencepost.diagnose.explain.findings import SIMILAR, WHAT_HAPPENED, WHY, Action, Cause, Finding, Findings
from fencepost.diagnose.snapshot import TxnSnapshot
from fencepost.diagnose.words import duration, instant, listed


def explain_unknown(snapshot: TxnSnapshot) -> Findings:
    id_ = snapshot.transactional_id
    unknown = f"Broker {snapshot.coordinator}, the coordinator of `{id_}`, does not know this transactional id."
    if snapshot.coordinator is None:
        unknown = f"The cluster has had no transaction yet, so it does not know `{id_}`."
    why, cause = _why_unknown(snapshot)
    findings = [Finding(WHAT_HAPPENED, unknown), Finding(WHY, why)]
    actions = []
    if snapshot.similar:
        findings.append(Finding(SIMILAR, f"These ids look like it: {listed(f'`{s}`' for s in snapshot.similar)}."))
        likely = command("txn", "explain", about=snapshot.similar[0])
        actions.append(Action(advice="look at one of the similar ids", command=likely))
    actions.append(Action(advice="see all ids of the cluster", command=command("txn", "list")))
    return Findings(tuple(findings), tuple(actions), (cause,))


def _why_unknown(snapshot: TxnSnapshot) -> tuple[str, Cause]:
    removed = next((e for e in reversed(snapshot.history or ()) if e.txn is None), None)
    if removed is not None:
        return f"The id was removed at {instant(removed.timestamp_ms)}, because it had expired.", Cause.EXPIRED
    if snapshot.coordinator is None:
        return "No producer ever registered the id.", Cause.UNKNOWN_ID
    expiration_ms = snapshot.settings.expiration_ms
    after = f" for {duration(expiration_ms)}" if expiration_ms is not None else " for a long time"
    return f"Either no producer ever registered the id, or it was not used{after} and has expired.", Cause.UNKNOWN_ID
