"""The document of `fencepost txn explain`."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.diagnose.affected import AffectedGroup, affected_groups
from fencepost.diagnose.explain.closed import explain_closed
from fencepost.diagnose.explain.decided import explain_decided
from fencepost.diagnose.explain.findings import NO_FINDINGS, NOTHING_TO_DO, Action, Cause, Finding, Findings
from fencepost.diagnose.explain.ongoing import deadline_ms, explain_ongoing
from fencepost.diagnose.explain.readers import Blocked, what_it_blocks, which_groups
from fencepost.diagnose.explain.suspicions import explain_duel, explain_hanging, explain_nameless
from fencepost.diagnose.explain.unknown import explain_unknown
from fencepost.diagnose.hanging import HangingTxn, hanging_of
from fencepost.diagnose.history import RpcRow, rpc_row
from fencepost.diagnose.snapshot import OpenTxn, TxnSnapshot, is_decided
from fencepost.diagnose.txns import age_of
from fencepost.machines.txn.states import ONGOING


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    now_ms: int
    transactional_id: str
    # None: no coordinator knows the id.
    state: str | None
    age_ms: int | None
    # The most serious of `causes`.
    cause: Cause
    causes: tuple[Cause, ...]
    # When its coordinator aborts the open transaction; None if none is open, or if it has no timeout.
    deadline_ms: int | None
    # None if the brokers do not remember requests.
    last_request: RpcRow | None
    # All findings as one text.
    paragraph: str
    findings: tuple[Finding, ...]
    blocks: tuple[Blocked, ...]
    hanging: tuple[HangingTxn, ...]
    # Transactions that hang under no transactional id that is known: they may be of this one.
    hanging_nameless: tuple[OpenTxn, ...]
    affected_groups: tuple[AffectedGroup, ...]
    actions: tuple[Action, ...]
    # What is not known about groups.
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


def diagnose_txn(snapshot: TxnSnapshot) -> Explanation:
    txn = snapshot.txn
    blocks = what_it_blocks(snapshot)
    hanging = hanging_of(snapshot)
    groups = affected_groups(snapshot.groups, snapshot.ends, {b.where for b in blocks})
    # Hanging transactions come first: readers wait for them for ever.
    found = explain_hanging(hanging, blocks)
    nameless = explain_nameless(snapshot)
    duel = explain_duel(snapshot)
    if txn is None:
        found = _with(found, NO_FINDINGS, explain_unknown(snapshot), nameless)
    elif txn.state == ONGOING.kafka_name:
        found = _with(found, duel, explain_ongoing(snapshot, txn, blocks), nameless)
    elif is_decided(txn.state):
        found = _with(found, duel, explain_decided(snapshot, txn, blocks), nameless)
    else:
        is_all_well = not hanging and not nameless.findings and not duel.findings
        found = _with(found + nameless, duel, explain_closed(snapshot, txn, is_all_well))
    findings = (*found.findings, *which_groups(groups))
    return Explanation(
        now_ms=snapshot.now_ms,
        transactional_id=snapshot.transactional_id,
        state=txn.state if txn is not None else None,
        age_ms=age_of(txn, snapshot.now_ms) if txn is not None else None,
        cause=found.causes[0],
        causes=found.causes,
        deadline_ms=deadline_ms(txn) if txn is not None and txn.state == ONGOING.kafka_name else None,
        last_request=rpc_row(snapshot.rpcs[-1]) if snapshot.rpcs else None,
        paragraph=" ".join(finding.text for finding in findings),
        findings=findings,
        blocks=blocks,
        hanging=hanging,
        hanging_nameless=snapshot.nameless,
        affected_groups=groups,
        actions=found.actions,
        warnings=snapshot.warnings,
        problems=snapshot.problems,
    )


def _with(hanging: Findings, duel: Findings, of_state: Findings, nameless: Findings = NO_FINDINGS) -> Findings:
    """The findings of a duel come after those of the state, its actions first: no other action ends a duel."""
    urgent = duel.actions + hanging.actions + nameless.actions
    return Findings(
        hanging.findings + of_state.findings + duel.findings + nameless.findings,
        urgent + tuple(action for action in of_state.actions if action is not NOTHING_TO_DO or not urgent),
        hanging.causes + duel.causes + of_state.causes + nameless.causes,
    )
