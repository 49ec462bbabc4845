"""Explains an id without a transaction: how its last one ended, or that its coordinator does not know it."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.client.admin.answers import DescribedTxn
from fencepost.commands import command
from fencepost.diagnose.explain.findings import (
    LAST_ACTIVITY,
    READERS,
    SIMILAR,
    WHAT_HAPPENED,
    WHY,
    Action,
    Cause,
    Finding,
    Findings,
    last_request,
)
from fencepost.diagnose.history import Abort, is_fenced_by_order, next_decision, why_aborted
from fencepost.diagnose.snapshot import LogEntry, TxnSnapshot
from fencepost.diagnose.words import duration, instant, listed
from fencepost.machines.txn.states import COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, Txn


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


def explain_closed(snapshot: TxnSnapshot, txn: DescribedTxn, is_all_well: bool) -> Findings:
    """`is_all_well`: there is no suspicion, so that the explanation may say that no reader waits."""
    findings = [Finding(WHAT_HAPPENED, _how_it_ended(snapshot, txn))]
    actions: list[Action] = []
    # A broker that did not answer may know of more.
    as_known = ", as far as the cluster answered" if snapshot.problems else ""
    abort = last_abort(snapshot.history or ())
    if abort is not None:
        why, prepared = abort
        after = f"after {duration(prepared.updated_ms - prepared.start_ms)} of a timeout of"
        text = f"The abort at {instant(prepared.updated_ms)}, {after} {duration(prepared.timeout_ms)}, was decided"
        findings.append(Finding(WHY, f"{text} {why.value}."))
        actions += _after_abort(why)
    elif is_fenced(snapshot):
        actions.append(AFTER_AN_ORDER)
    findings += [Finding(LAST_ACTIVITY, sentence) for sentence in last_request(snapshot)]
    if is_all_well:
        findings.append(Finding(READERS, f"It blocks no reader{as_known}."))
    if abort is not None:
        actions.append(
            Action(advice="to see every step", command=command("txn", "history", about=txn.transactional_id))
        )
    elif is_all_well and not actions:
        actions.append(Action(advice=f"there is nothing to do{as_known}"))
    return Findings(tuple(findings), tuple(actions), (_cause(snapshot, txn, abort[0] if abort is not None else None),))


def _cause(snapshot: TxnSnapshot, txn: DescribedTxn, why: Abort | None) -> Cause:
    if why is not None:
        return Cause[f"ABORTED_BY_{why.name}"]
    if is_fenced(snapshot):
        return Cause.FENCED_BY_ORDER
    return {"CompleteCommit": Cause.COMMITTED, "CompleteAbort": Cause.ABORTED}.get(txn.state, Cause.REGISTERED)


def _how_it_ended(snapshot: TxnSnapshot, txn: DescribedTxn) -> str:
    record = snapshot.latest
    ago = ""
    if record is not None:
        ago = f" {duration(snapshot.now_ms - record.updated_ms)} ago, at {instant(record.updated_ms)}"
    if is_fenced(snapshot):
        since = f"an operator fenced its producer{ago}, the epoch is {txn.producer_epoch} now, and no producer has"
        registered = f"{since} registered since"
    else:
        registered = f"producer {txn.producer_id} (epoch {txn.producer_epoch}) registered{ago}, and has begun no "
        registered += "transaction since"
    happened = {
        "Empty": registered,
        "CompleteCommit": f"its last transaction was committed{ago}",
        "CompleteAbort": f"its last transaction was aborted{ago}",
    }[txn.state]
    return f"No transaction of `{txn.transactional_id}` is open ({txn.state}): {happened}."


def is_fenced(snapshot: TxnSnapshot) -> bool:
    """Whether the order of an operator is the last that happened to the id."""
    before, last = [None, None, *(entry.txn for entry in snapshot.history or ())][-2:]
    return last is not None and is_fenced_by_order(before, last)


def last_abort(history: Sequence[LogEntry]) -> tuple[Abort, Txn] | None:
    """The abort that the id's last transaction ended in, if it ended in one."""
    txns = [entry.txn for entry in history]
    for n in reversed(range(len(txns))):
        txn = txns[n]
        if txn is None or txn.state is COMPLETE_COMMIT:
            return None
        if txn.state is PREPARE_ABORT:
            before = txns[n - 1] if n else None
            if before is None or before.state is not ONGOING:
                return None  # There was nothing to abort, or compaction has removed the record before.
            return why_aborted(before, txn, next_decision(txns[n + 1 :])), txn
    return None


AFTER_AN_ORDER = Action(
    advice="its producer is refused from now on (PRODUCER_FENCED or INVALID_PRODUCER_EPOCH) and has to be started "
    "again; if none is to use the id any more, there is nothing to do"
)


def _after_abort(why: Abort) -> list[Action]:
    if why is Abort.TIMEOUT:
        return [
            Action(
                advice="its client did not finish in time: make transactions shorter or transaction.timeout.ms longer; "
                "the client's next request is refused, and it has to start again"
            )
        ]
    if why is Abort.ORDER:
        return [AFTER_AN_ORDER]
    if why is Abort.TAKEOVER:
        return [
            Action(
                advice="after a restart this is normal; if nothing was restarted, two processes use this "
                "transactional.id: give each its own"
            )
        ]
    return []
