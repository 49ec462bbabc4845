"""One transactional id in one paragraph: what state, since when, why, what it blocks, what to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, NamedPartition, Producer
from fencepost.diagnose.history import Abort, next_decision, why_aborted
from fencepost.diagnose.snapshot import (
    MARKERS_TAKE_MS,
    OFFSETS_TOPIC,
    LogEntry,
    TxnSnapshot,
    first_open,
    is_open,
    leftovers,
)
from fencepost.diagnose.txns import age_of
from fencepost.diagnose.words import counted, duration, instant, listed
from fencepost.machines.txn.decisions import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT, Txn
from fencepost.protocol import errors

ONGOING_NAME = ONGOING.kafka_name
# Two-phase commit (KIP-939): such a transaction has no end but the one that its owner gives it.
NO_TIMEOUT_MS = 2**31 - 1
# A coordinator that looks every ten seconds may be late by one look, and by a slow disk.
LATE_MS = 30_000
# So many registrations within this time are no restart: two processes fence each other.
DUEL_REGISTRATIONS = 4
DUEL_MS = 60_000


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
class Action:
    """What to do, and when to do it; some take a command."""

    advice: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    now_ms: int
    transactional_id: str
    # None: no coordinator knows the id.
    state: str | None
    age_ms: int | None
    paragraph: str
    blocks: tuple[Blocked, ...]
    actions: tuple[Action, ...]
    problems: tuple[str, ...]


def diagnose_txn(snapshot: TxnSnapshot) -> Explanation:
    txn = snapshot.txn
    if txn is None:
        sentences, actions = _unknown(snapshot)
        blocks: tuple[Blocked, ...] = ()
    else:
        blocks = what_it_blocks(snapshot, txn)
        suspected = [_duel(snapshot), _leftovers(snapshot, txn)]
        if txn.state == ONGOING_NAME:
            sentences, actions = _ongoing(snapshot, txn, blocks)
        elif is_open(txn.state):
            sentences, actions = _prepared(snapshot, txn, blocks)
        else:
            sentences, actions = _closed(snapshot, txn, is_all=not any(said for said, _ in suspected))
        for extra, more in suspected:
            sentences += extra
            actions += more
    return Explanation(
        now_ms=snapshot.now_ms,
        transactional_id=snapshot.transactional_id,
        state=txn.state if txn is not None else None,
        age_ms=age_of(txn, snapshot.now_ms) if txn is not None else None,
        paragraph=" ".join(sentences),
        blocks=blocks,
        actions=tuple(actions),
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


# --- by state ---------------------------------------------------------------------------------------------

Parts = tuple[list[str], list[Action]]


def _unknown(snapshot: TxnSnapshot) -> Parts:
    id_ = snapshot.transactional_id
    expiration_ms = snapshot.settings.expiration_ms
    forgotten = next((e for e in reversed(snapshot.history or ()) if e.txn is None), None)
    sentences = [f"Nothing is known of `{id_}`: broker {snapshot.coordinator}, its coordinator, has no such id."]
    if forgotten is not None:
        sentences.append(f"It was forgotten at {instant(forgotten.timestamp_ms)}, after a time without use.")
    else:
        after = f" for {duration(expiration_ms)}" if expiration_ms is not None else ""
        sentences.append(f"Either no producer ever registered it, or nobody used it{after} and it was forgotten.")
    actions = []
    if snapshot.similar:
        sentences.append(f"Ids that look like it: {listed(f'`{s}`' for s in snapshot.similar)}.")
        likely = shlex.quote(snapshot.similar[0])
        actions.append(Action(advice="look at one of them", command=f"fencepost txn explain {likely}"))
    actions.append(Action(advice="see all ids of the cluster", command="fencepost txn list"))
    return sentences, actions


def _ongoing(snapshot: TxnSnapshot, txn: DescribedTxn, blocks: Sequence[Blocked]) -> Parts:
    id_ = txn.transactional_id
    age_ms = snapshot.now_ms - txn.start_ms
    opened = (
        f"Transaction `{id_}` is open (Ongoing) for {duration(age_ms)}, since {instant(txn.start_ms)}: "
        f"producer {txn.producer_id} with epoch {txn.producer_epoch} has neither committed nor aborted it."
    )
    sentences = [
        opened,
        _last_sign_of_life(snapshot, txn),
        *_last_request(snapshot),
        *_what_waits(txn, blocks),
        _when_it_times_out(snapshot, txn, age_ms),
    ]
    fence = "to end it now: this aborts it and frees the readers; its producer is refused from then on"
    actions = [
        Action(advice="if its process is alive and at work, wait for it"),
        Action(advice="if its process is stuck or gone, start it again: it registers the same id, which aborts this"),
        Action(advice=fence, command=f"fencepost txn fence {shlex.quote(id_)}"),
    ]
    return sentences, actions


def _last_sign_of_life(snapshot: TxnSnapshot, txn: DescribedTxn) -> str:
    writes = [(p.last_timestamp_ms, where) for where, p in _own(snapshot, txn) if p.txn_start_offset >= 0]
    if not writes:
        return f"It has written nothing yet to its {counted(len(txn.partitions), 'partition')}."
    last_ms, where = max(writes)
    return f"It last wrote {duration(snapshot.now_ms - last_ms)} ago, to {where}."


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


def _own(snapshot: TxnSnapshot, txn: DescribedTxn) -> list[tuple[NamedPartition, Producer]]:
    return [
        (where, p)
        for where in txn.partitions
        for p in snapshot.producers.get(where, ())
        if p.producer_id == txn.producer_id
    ]


def _what_waits(txn: DescribedTxn, blocks: Sequence[Blocked]) -> list[str]:
    data = [b for b in blocks if b.topic != OFFSETS_TOPIC]
    sentences = []
    if data:
        waiting = sum(b.waiting for b in data)
        one = len(data) == 1
        sentences.append(
            f"It pins the last stable offset of {listed(b.where for b in data)}: {counted(waiting, 'offset')} behind "
            f"{'it wait' if one else 'these wait'}, and no read_committed reader gets past."
        )
    else:
        sentences.append("No reader waits for it at the moment.")
    if any(where.topic == OFFSETS_TOPIC for where in txn.partitions):
        sentences.append(
            "Offsets of a consumer group are part of it: who fetches them meanwhile is told UNSTABLE_OFFSET_COMMIT."
        )
    return sentences


def _when_it_times_out(snapshot: TxnSnapshot, txn: DescribedTxn, age_ms: int) -> str:
    if txn.timeout_ms >= NO_TIMEOUT_MS:
        return "It has no timeout (two-phase commit): only its owner ends it."
    left_ms = txn.timeout_ms - age_ms
    every = snapshot.settings.abort_check_ms
    looks = f", and the coordinator looks every {duration(every)}" if every is not None else ""
    if left_ms > 0:
        return (
            f"If nothing happens, broker {txn.coordinator} aborts it in {duration(left_ms)}: "
            f"its timeout is {duration(txn.timeout_ms)}{looks}."
        )
    if -left_ms < LATE_MS + (every or 0):
        return f"Its timeout of {duration(txn.timeout_ms)} has passed{looks}: it is about to be aborted."
    return (
        f"Its timeout of {duration(txn.timeout_ms)} passed {duration(-left_ms)} ago and it should have been aborted: "
        f"broker {txn.coordinator}, its coordinator, does not get to it; its log says why."
    )


def _prepared(snapshot: TxnSnapshot, txn: DescribedTxn, blocks: Sequence[Blocked]) -> Parts:
    commits = txn.state == "PrepareCommit"
    decided_ms = _decided_ms(snapshot)
    since = f" {duration(snapshot.now_ms - decided_ms)} ago" if decided_ms is not None else ""
    decided = (
        f"Transaction `{txn.transactional_id}` was decided{since}: it is going to be "
        f"{'committed' if commits else 'aborted'} ({txn.state}), and nothing changes that any more."
    )
    sentences = [decided]
    if txn.partitions:
        sentences.append(
            f"Broker {txn.coordinator}, its coordinator, still has to write the marker on {listed(txn.partitions)}."
        )
    sentences += _what_waits(txn, blocks) if blocks else []
    if decided_ms is not None and snapshot.now_ms - decided_ms < MARKERS_TAKE_MS:
        return sentences, [Action(advice="wait: markers take milliseconds")]
    sentences.append(
        "Markers take milliseconds; these do not get through: a partition without a leader, with too few replicas "
        "in sync, or on a full disk."
    )
    leaderless = [where for where in txn.partitions if where not in snapshot.ends]
    where = f"look at {listed(leaderless)}, whose leader did not answer" if leaderless else "look at these partitions"
    return sentences, [
        Action(advice=f"{where}; the commit goes on by itself when they are well" if commits else where),
        Action(advice="a new producer with this id is told CONCURRENT_TRANSACTIONS until then: do not fence it"),
    ]


def _decided_ms(snapshot: TxnSnapshot) -> int | None:
    record = _latest(snapshot)
    return record.updated_ms if record is not None and is_open(record.state.kafka_name) else None


def _latest(snapshot: TxnSnapshot) -> Txn | None:
    return snapshot.history[-1].txn if snapshot.history else None


def _closed(snapshot: TxnSnapshot, txn: DescribedTxn, is_all: bool) -> Parts:
    """`is_all`: nothing else was found, in which case it says that all is well."""
    record = _latest(snapshot)
    ago = ""
    if record is not None:
        ago = f" {duration(snapshot.now_ms - record.updated_ms)} ago, at {instant(record.updated_ms)}"
    producer = f"producer {txn.producer_id} (epoch {txn.producer_epoch}) registered{ago}"
    happened = {
        "Empty": f"{producer}, and has begun nothing since",
        "CompleteCommit": f"its last transaction was committed{ago}",
        "CompleteAbort": f"its last transaction was aborted{ago}",
    }[txn.state]
    sentences = [f"No transaction of `{txn.transactional_id}` is open ({txn.state}): {happened}."]
    abort = last_abort(snapshot.history or ())
    actions = []
    # Who did not answer may know of more.
    as_known = ", as far as could be asked" if snapshot.problems else ""
    if abort is not None:
        why, prepared = abort
        sentences.append(
            f"The abort at {instant(prepared.updated_ms)}, after {duration(prepared.updated_ms - prepared.start_ms)} "
            f"of a timeout of {duration(prepared.timeout_ms)}, was decided {why.value}."
        )
        actions += _after_abort(why)
    sentences += _last_request(snapshot)
    if is_all:
        sentences.append(f"It blocks nobody{as_known}.")
    if abort is not None:
        history = f"fencepost txn history {shlex.quote(txn.transactional_id)}"
        actions.append(Action(advice="to see every step", command=history))
    elif is_all:
        actions.append(Action(advice=f"there is nothing to do{as_known}"))
    return sentences, actions


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
                return None  # There was nothing to abort, or nothing is left to tell.
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
                advice="after a restart this is as it should be; if nothing was restarted, two processes use this "
                "transactional.id: give each its own"
            )
        ]
    return []


# --- in any state -----------------------------------------------------------------------------------------


def _duel(snapshot: TxnSnapshot) -> Parts:
    """Two processes with one id: each registers when it finds itself fenced, and fences the other.

    A registration after a commit is none of these: our sink registers before each batch, with transaction version 1.
    """
    txns = [entry.txn for entry in snapshot.history or ()]
    times = [
        txn.updated_ms
        for before, txn in zip([None, *txns], txns, strict=False)
        if txn is not None and txn.state is EMPTY and (before is None or before.state is not COMPLETE_COMMIT)
    ]
    recent = [ms for ms in times if times[-1] - ms <= DUEL_MS]
    if len(recent) < DUEL_REGISTRATIONS:
        return [], []
    sentence = (
        f"{len(recent)} producers registered it within {duration(recent[-1] - recent[0])}, the last one "
        f"{duration(snapshot.now_ms - recent[-1])} ago: two processes probably share the id and fence each other, "
        "or one starts again and again."
    )
    return [sentence], [Action(advice="find the processes that use this transactional.id, and leave it to one of them")]


def _leftovers(snapshot: TxnSnapshot, txn: DescribedTxn) -> Parts:
    """What is open on partitions under its producer ids and not part of its open transaction."""
    found = sorted(leftovers(snapshot.producers, txn, snapshot.history or ()))
    if not found:
        return [], []
    places = listed(
        f"{open_.where} (producer {open_.producer_id}, from offset {open_.start_offset})" for open_ in found
    )
    sentence = f"A transaction that its coordinator does not know is open on {places}: it seems to hang."
    return [sentence], [Action(advice="make sure, and see how to abort it", command="fencepost txn hanging")]
