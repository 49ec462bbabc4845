"""What may be wrong with a transactional id in any state: two processes that share it, a transaction that hangs."""

from __future__ import annotations

from fencepost.client.admin.answers import DescribedTxn
from fencepost.diagnose.explain.findings import SUSPICION, Action, Finding, Findings
from fencepost.diagnose.snapshot import TxnSnapshot, leftovers
from fencepost.diagnose.words import duration, listed
from fencepost.machines.txn.states import COMPLETE_COMMIT, EMPTY

# A process that restarts does not register so often in this time: two processes fence each other.
DUEL_REGISTRATIONS = 4
DUEL_MS = 60_000


def suspicions(snapshot: TxnSnapshot, txn: DescribedTxn) -> Findings:
    return _duel(snapshot) + _leftovers(snapshot, txn)


def _duel(snapshot: TxnSnapshot) -> Findings:
    """Two processes with one id: each registers when it finds itself fenced, and so fences the other.

    A registration after a commit does not count: with TV1 our sink registers before each micro-batch.
    """
    txns = [entry.txn for entry in snapshot.history or ()]
    times = [
        txn.updated_ms
        for before, txn in zip([None, *txns], txns, strict=False)
        if txn is not None and txn.state is EMPTY and (before is None or before.state is not COMPLETE_COMMIT)
    ]
    recent = [ms for ms in times if times[-1] - ms <= DUEL_MS]
    if len(recent) < DUEL_REGISTRATIONS:
        return Findings()
    text = (
        f"{len(recent)} producers registered the id within {duration(recent[-1] - recent[0])}, the last one "
        f"{duration(snapshot.now_ms - recent[-1])} ago: probably two processes share the id and fence each other, "
        "or one process restarts again and again."
    )
    advice = "find the processes that use this transactional.id, and leave it to one of them"
    return Findings((Finding(SUSPICION, text),), (Action(advice=advice),))


def _leftovers(snapshot: TxnSnapshot, txn: DescribedTxn) -> Findings:
    found = sorted(leftovers(snapshot.producers, txn, snapshot.history or ()))
    if not found:
        return Findings()
    places = listed(
        f"{open_.where} (producer {open_.producer_id}, from offset {open_.start_offset})" for open_ in found
    )
    text = f"A transaction that its coordinator does not know is open on {places}: it seems to hang."
    action = Action(advice="check whether it hangs, and see how to abort it", command="fencepost txn hanging")
    return Findings((Finding(SUSPICION, text),), (action,))
