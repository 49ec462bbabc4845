"""The document of `fencepost txn explain`."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.diagnose.explain.closed import explain_closed
from fencepost.diagnose.explain.decided import explain_decided
from fencepost.diagnose.explain.findings import Action, Finding
from fencepost.diagnose.explain.ongoing import explain_ongoing
from fencepost.diagnose.explain.readers import Blocked, what_it_blocks
from fencepost.diagnose.explain.suspicions import suspicions
from fencepost.diagnose.explain.unknown import explain_unknown
from fencepost.diagnose.snapshot import TxnSnapshot, is_decided
from fencepost.diagnose.txns import age_of
from fencepost.machines.txn.states import ONGOING


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    now_ms: int
    transactional_id: str
    # None: no coordinator knows the id.
    state: str | None
    age_ms: int | None
    # All findings as one text.
    paragraph: str
    findings: tuple[Finding, ...]
    blocks: tuple[Blocked, ...]
    actions: tuple[Action, ...]
    problems: tuple[str, ...]


def diagnose_txn(snapshot: TxnSnapshot) -> Explanation:
    txn = snapshot.txn
    blocks: tuple[Blocked, ...] = ()
    if txn is None:
        found = explain_unknown(snapshot)
    else:
        blocks = what_it_blocks(snapshot, txn)
        suspected = suspicions(snapshot, txn)
        if txn.state == ONGOING.kafka_name:
            found = explain_ongoing(snapshot, txn, blocks)
        elif is_decided(txn.state):
            found = explain_decided(snapshot, txn, blocks)
        else:
            found = explain_closed(snapshot, txn, is_all_well=not suspected.findings)
        found += suspected
    return Explanation(
        now_ms=snapshot.now_ms,
        transactional_id=snapshot.transactional_id,
        state=txn.state if txn is not None else None,
        age_ms=age_of(txn, snapshot.now_ms) if txn is not None else None,
        paragraph=" ".join(finding.text for finding in found.findings),
        findings=found.findings,
        blocks=blocks,
        actions=found.actions,
        problems=snapshot.problems,
    )
