"""Explains an open transaction."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.client.admin.answers import DescribedTxn, NamedPartition, Producer
from fencepost.commands import command
from fencepost.counting import counted
from fencepost.diagnose.explain.findings import (
    LAST_ACTIVITY,
    READERS,
    WHAT_HAPPENED,
    WHAT_IS_NEXT,
    Action,
    Cause,
    Finding,
    Findings,
)
from fencepost.diagnose.explain.readers import Blocked, what_waits
from fencepost.diagnose.explain.requests import last_request
from fencepost.diagnose.snapshot import TxnSnapshot
from fencepost.diagnose.words import duration, instant

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
        return f"It has written nothing yet to its {counted(len(txn.partitions), 'partition')}."
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
