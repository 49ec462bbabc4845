"""Explains one transactional id: what happened, why, which readers wait for it, what happens next, what to do.

Each statement is a `Finding` with a label; the commands print one per line. `suspicions.py` adds the findings that do
not depend on the state.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, NamedPartition, Producer
from fencepost.diagnose.findings import Action, Finding, Findings
from fencepost.diagnose.history import Abort, next_decision, why_aborted
from fencepost.diagnose.snapshot import (
    MARKERS_TAKE_MS,
    OFFSETS_TOPIC,
    LogEntry,
    TxnSnapshot,
    first_open,
    is_decided,
)
from fencepost.diagnose.suspicions import suspicions
from fencepost.diagnose.txns import age_of
from fencepost.diagnose.words import counted, duration, instant, listed
from fencepost.machines.txn.decisions import IDLE, ONGOING, PREPARE_ABORT, PREPARED, Txn
from fencepost.protocol import errors

WHAT_HAPPENED, WHY, LAST_ACTIVITY, READERS = "what happened", "why", "last activity", "readers"
WHAT_IS_NEXT, SIMILAR = "what happens next", "similar ids"
# Two-phase commit (KIP-939): such a transaction never times out, only its owner ends it.
NO_TIMEOUT_MS = 2**31 - 1
# A coordinator that checks timeouts every ten seconds may be late by one check, and by a slow disk.
LATE_MS = 30_000
NOTHING_TO_DO = Action(advice="there is nothing to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A partition whose last stable offset this transaction holds."""

    topic: str
    partition: int
    last_stable_offset: int
    waiting: int

    @property
    def where(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)


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
        found = _unknown(snapshot)
    else:
        blocks = what_it_blocks(snapshot, txn)
        suspected = suspicions(snapshot, txn)
        if txn.state == ONGOING.kafka_name:
            found = _ongoing(snapshot, txn, blocks)
        elif is_decided(txn.state):
            found = _decided(snapshot, txn, blocks)
        else:
            found = _closed(snapshot, txn, is_all_well=not suspected.findings)
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


def what_it_blocks(snapshot: TxnSnapshot, txn: DescribedTxn) -> tuple[Blocked, ...]:
    """The partitions on which this transaction is the oldest open one, and readers wait behind it."""
    found = []
    for where in txn.partitions:
        ends = snapshot.ends.get(where)
        pin = first_open(snapshot.producers.get(where, ()))
        if ends is not None and ends.gap > 0 and pin is not None and pin.producer_id == txn.producer_id:
            blocked = Blocked(
                topic=where.topic,
                partition=where.partition,
                last_stable_offset=ends.last_stable_offset,
                waiting=ends.gap,
            )
            found.append(blocked)
    return tuple(found)


# --- an id that no coordinator knows ----------------------------------------------------------------------


def _unknown(snapshot: TxnSnapshot) -> Findings:
    id_ = snapshot.transactional_id
    unknown = f"Broker {snapshot.coordinator}, the coordinator of `{id_}`, does not know this transactional id."
    findings = [Finding(WHAT_HAPPENED, unknown), Finding(WHY, _why_unknown(snapshot))]
    actions = []
    if snapshot.similar:
        findings.append(Finding(SIMILAR, f"These ids look like it: {listed(f'`{s}`' for s in snapshot.similar)}."))
        likely = shlex.quote(snapshot.similar[0])
        actions.append(Action(advice="look at one of the similar ids", command=f"fencepost txn explain {likely}"))
    actions.append(Action(advice="see all ids of the cluster", command="fencepost txn list"))
    return Findings(tuple(findings), tuple(actions))


def _why_unknown(snapshot: TxnSnapshot) -> str:
    removed = next((e for e in reversed(snapshot.history or ()) if e.txn is None), None)
    if removed is not None:
        return f"The id was removed at {instant(removed.timestamp_ms)}, because it had expired."
    expiration_ms = snapshot.settings.expiration_ms
    after = f" for {duration(expiration_ms)}" if expiration_ms is not None else " for a long time"
    return f"Either no producer ever registered the id, or it was not used{after} and has expired."


# --- an open transaction ----------------------------------------------------------------------------------


def _ongoing(snapshot: TxnSnapshot, txn: DescribedTxn, blocks: Sequence[Blocked]) -> Findings:
    id_ = txn.transactional_id
    age_ms = snapshot.now_ms - txn.start_ms
    opened = (
        f"Transaction `{id_}` is open (Ongoing) for {duration(age_ms)}, since {instant(txn.start_ms)}: "
        f"producer {txn.producer_id} with epoch {txn.producer_epoch} has neither committed nor aborted it."
    )
    return Findings(
        (
            Finding(WHAT_HAPPENED, opened),
            Finding(LAST_ACTIVITY, " ".join([_last_write(snapshot, txn), *_last_request(snapshot)])),
            Finding(READERS, _what_waits(txn, blocks)),
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
                command=f"fencepost txn fence {shlex.quote(id_)}",
            ),
        ),
    )


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


def _last_request(snapshot: TxnSnapshot) -> list[str]:
    if not snapshot.rpcs:
        return []
    rpc = snapshot.rpcs[-1]
    client = f"client `{rpc.client_id}`" if rpc.client_id else "a client"
    came = f"The last request for it was {rpc.name}, {duration(snapshot.now_ms - rpc.at_ms)} ago from {client}"
    if rpc.duration_us < 0:
        result = "is not answered yet"
    elif rpc.error_code:
        result = f"was answered with {errors.name_of(rpc.error_code)}"
    else:
        result = "was answered without an error"
    return [f"{came} at {rpc.host}:{rpc.port}, and {result}."]


def _what_waits(txn: DescribedTxn, blocks: Sequence[Blocked]) -> str:
    data = [b for b in blocks if b.topic != OFFSETS_TOPIC]
    sentences = ["No reader waits for it at the moment."]
    if data:
        waiting = sum(b.waiting for b in data)
        pinned = listed(b.where for b in data)
        offsets = f"{counted(waiting, 'offset')} behind it cannot be read with read_committed"
        sentences = [f"It pins the last stable offset of {pinned}: {offsets}."]
    if any(where.topic == OFFSETS_TOPIC for where in txn.partitions):
        sentences.append(
            "It also commits offsets of a consumer group: until it ends, OffsetFetch is answered with "
            "UNSTABLE_OFFSET_COMMIT."
        )
    return " ".join(sentences)


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
    if -left_ms < LATE_MS + (every or 0):
        return f"Its timeout of {duration(txn.timeout_ms)} has passed{checks}: it is about to be aborted."
    return (
        f"Its timeout of {duration(txn.timeout_ms)} passed {duration(-left_ms)} ago, but its coordinator, broker "
        f"{txn.coordinator}, has not aborted it; look for the reason in the log of that broker."
    )


# --- a decided transaction, some of whose markers are not written -----------------------------------------


def _decided(snapshot: TxnSnapshot, txn: DescribedTxn, blocks: Sequence[Blocked]) -> Findings:
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
        findings.append(Finding(READERS, _what_waits(txn, blocks)))
    return Findings(tuple(findings), tuple(actions))


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
    patience = Action(advice="ask again in a few seconds, and go on only if it is still in this state")
    return f"{why} Markers take milliseconds. If it is still in this state later, the cause is {causes}.", [
        patience,
        *actions,
    ]


def _decided_ms(snapshot: TxnSnapshot) -> int | None:
    """When the last decision was recorded, if the log shows it."""
    records = [entry.txn for entry in snapshot.history or () if entry.txn is not None]
    return next((txn.updated_ms for txn in reversed(records) if txn.state in PREPARED), None)


def _is_complete_by_now(snapshot: TxnSnapshot) -> bool:
    """The log is read after the coordinator was asked, and may show the end of the transaction."""
    latest = _latest(snapshot)
    return latest is not None and latest.state in IDLE


def _latest(snapshot: TxnSnapshot) -> Txn | None:
    return snapshot.history[-1].txn if snapshot.history else None


# --- no open transaction ----------------------------------------------------------------------------------


def _closed(snapshot: TxnSnapshot, txn: DescribedTxn, is_all_well: bool) -> Findings:
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
    findings += [Finding(LAST_ACTIVITY, sentence) for sentence in _last_request(snapshot)]
    if is_all_well:
        findings.append(Finding(READERS, f"It blocks no reader{as_known}."))
    if abort is not None:
        history = f"fencepost txn history {shlex.quote(txn.transactional_id)}"
        actions.append(Action(advice="to see every step", command=history))
    elif is_all_well:
        actions.append(Action(advice=f"there is nothing to do{as_known}"))
    return Findings(tuple(findings), tuple(actions))


def _how_it_ended(snapshot: TxnSnapshot, txn: DescribedTxn) -> str:
    record = _latest(snapshot)
    ago = ""
    if record is not None:
        ago = f" {duration(snapshot.now_ms - record.updated_ms)} ago, at {instant(record.updated_ms)}"
    producer = f"producer {txn.producer_id} (epoch {txn.producer_epoch}) registered{ago}"
    happened = {
        "Empty": f"{producer}, and has begun no transaction since",
        "CompleteCommit": f"its last transaction was committed{ago}",
        "CompleteAbort": f"its last transaction was aborted{ago}",
    }[txn.state]
    return f"No transaction of `{txn.transactional_id}` is open ({txn.state}): {happened}."


def last_abort(history: Sequence[LogEntry]) -> tuple[Abort, Txn] | None:
    """The abort that the id's last transaction ended in, if it ended in one."""
    txns = [entry.txn for entry in history]
    for n in reversed(range(len(txns))):
        txn = txns[n]
        if txn is None or txn.state.kafka_name == "CompleteCommit":
            return None
        if txn.state is PREPARE_ABORT:
            before = txns[n - 1] if n else None
            if before is None or before.state is not ONGOING:
                return None  # There was nothing to abort, or compaction has removed the record before.
            return why_aborted(before, txn, next_decision(txns[n + 1 :])), txn
    return None


def _after_abort(why: Abort) -> list[Action]:
    if why is Abort.TIMEOUT:
        return [
            Action(
                advice="its client did not finish in time: make transactions shorter or transaction.timeout.ms longer; "
                "the client's next request is refused, and it has to start again"
            )
        ]
    if why is Abort.TAKEOVER:
        return [
            Action(
                advice="after a restart this is normal; if nothing was restarted, two processes use this "
                "transactional.id: give each its own"
            )
        ]
    return []
