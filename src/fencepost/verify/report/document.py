"""The report on a history: its size, and the anomalies of each kind with their events. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.checkers.index import Index
from fencepost.verify.checkers.kinds import KINDS, Anomaly
from fencepost.verify.checkers.pipeline import is_pipeline
from fencepost.verify.history import (
    NAMES,
    Acked,
    Assign,
    Begin,
    Committed,
    End,
    Event,
    Fault,
    Header,
    Init,
    Poll,
    PowerLoss,
    Rest,
    Send,
    SendOffsets,
    TxnEnded,
    TxnOutcome,
    Watermarks,
    WholeLog,
)

# Anomalies that a report shows of each kind, and of one that is allowed.
SHOWN = 5
SHOWN_ALLOWED = 1
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """`at_ms` counts from the first event of the history; `partition` is such as `tea-0`."""

    line: int
    at_ms: float
    by: str
    partition: str | None
    event: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownFault:
    at_ms: float
    seconds: float
    what: str


@dataclass(frozen=True, slots=True)
class ShownAnomaly:
    """`faults` are those at the time of its events."""

    what: str
    events: tuple[ShownEvent, ...]
    faults: tuple[ShownFault, ...]


@dataclass(frozen=True, slots=True)
class FoundKind:
    """An `is_allowed` kind is counted, and is no reason for a bad verdict."""

    kind: str
    title: str
    count: int
    meaning: str
    mistake: str
    remedy: str
    is_allowed: bool
    shown: tuple[ShownAnomaly, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`anomalies` counts those that are not allowed; `not_judged` is what the history does not let the checkers see."""

    seed: int
    what: dict[str, Any]
    seconds: float
    clients: int
    committed: int
    aborted: int
    unknown: int
    sent: int
    read: int
    faults: int
    anomalies: int
    kinds: tuple[FoundKind, ...]
    not_judged: tuple[str, ...]


def judge(header: Header, events: Iterable[Event], shown: int = SHOWN) -> VerifyReport:
    """Check a history and report what was found."""
    in_file = list(events)
    index = arrange(header, in_file)
    return make_report(index, in_file, check_history(index), shown)


def make_report(
    index: Index, in_file: Sequence[Event], anomalies: Sequence[Anomaly], shown: int = SHOWN
) -> VerifyReport:
    """`in_file` has the events in the order of the file, without the header, for the numbers of lines."""
    by_kind: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies:
        by_kind[anomaly.kind].append(anomaly)
    some = {
        name: found[: min(shown, SHOWN_ALLOWED) if KINDS[name].is_allowed else shown] for name, found in by_kind.items()
    }
    wanted = {id(event) for found in some.values() for anomaly in found for event in anomaly.proof}
    lines = {id(event): line for line, event in enumerate(in_file, 2) if id(event) in wanted} if wanted else {}
    kinds = tuple(_found_kind(index, name, len(by_kind[name]), some[name], lines) for name in KINDS if name in by_kind)
    outcomes = Counter(txn.outcome for txn in index.txns.values())
    return VerifyReport(
        seed=index.header.seed,
        what=index.header.what,
        seconds=round((index.events[-1].at - index.events[0].at) / 1e9, 3) if index.events else 0.0,
        clients=len({event.by for event in index.events}),
        committed=outcomes[TxnOutcome.COMMITTED],
        aborted=outcomes[TxnOutcome.ABORTED],
        unknown=outcomes[TxnOutcome.UNKNOWN] + outcomes[None],
        sent=len(index.sends),
        read=sum(len(poll.records) for poll in index.committed_polls),
        faults=len(index.faults),
        anomalies=sum(kind.count for kind in kinds if not kind.is_allowed),
        kinds=kinds,
        not_judged=tuple(_not_judged(index)),
    )


def _found_kind(index: Index, name: str, count: int, some: Sequence[Anomaly], lines: dict[int, int]) -> FoundKind:
    kind = KINDS[name]
    shown = tuple(_shown_anomaly(index, anomaly, lines) for anomaly in some)
    return FoundKind(name, kind.title, count, kind.meaning, kind.mistake, kind.remedy, kind.is_allowed, shown)


def _not_judged(index: Index) -> Iterable[str]:
    if is_pipeline(index.header):
        if index.rest is None:
            yield "missing outputs, outputs of aborted inputs, and offsets: the run was interrupted"
        return
    if index.rest is None:
        yield "lost writes, torn transactions, offsets and the last stable offset: the history ends before its rest"
        return
    unread = [where for where in index.places_written if where not in index.at_rest]
    if unread:
        topic, partition = unread[0]
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        yield f"lost writes in partitions that were not read at rest: {topic}-{partition}{more}"
    if not index.logs:
        yield "fenced producers by their epochs: the history has no whole log"


# --- one anomaly ----------------------------------------------------------------------------------------------


def _shown_anomaly(index: Index, anomaly: Anomaly, lines: dict[int, int]) -> ShownAnomaly:
    zero = index.events[0].at if index.events else 0
    proof = sorted({id(event): event for event in anomaly.proof}.values(), key=lambda event: event.at)
    events = tuple(
        ShownEvent(
            line=lines[id(event)],
            at_ms=_ms(event.at - zero),
            by=event.by,
            partition=_partition(event),
            event=NAMES[type(event)],
            text=describe(event),
        )
        for event in proof
    )
    faults: tuple[ShownFault, ...] = ()
    if proof:
        at = (fault for fault in index.faults if _strikes(fault, proof[0].at, proof[-1].at))
        faults = tuple(ShownFault(_ms(fault.at - zero), fault.seconds, fault.what) for fault in at)
    return ShownAnomaly(anomaly.what, events, faults)


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)


def _strikes(fault: Fault, first: int, last: int) -> bool:
    return fault.at <= last and fault.at + fault.seconds * 1e9 >= first


def _partition(event: Event) -> str | None:
    partition = getattr(event, "partition", -1)
    return f"{event.topic}-{partition}" if partition >= 0 else None  # type: ignore[union-attr]


def describe(event: Event) -> str:
    """An event in a few words, without its time and its client."""
    match event:
        case Init():
            known = f", producer id {event.producer_id} epoch {event.epoch}" if event.producer_id >= 0 else ""
            return f"init {event.transactional_id}, transaction version {event.version}{known}"
        case Send():
            source = f", made from {_place(event.source)}" if event.source is not None else ""
            where = event.topic if event.partition < 0 else f"{event.topic}-{event.partition}"
            return f"send {event.value} to {where}{source}"
        case Acked():
            return f"acknowledged {event.value} at offset {event.offset}"
        case SendOffsets() | Committed():
            verb = "send" if isinstance(event, SendOffsets) else "committed"
            return f"{verb} offsets of {event.group}: {', '.join(_place(offset) for offset in event.offsets)}"
        case End():
            return f"{'commit' if event.commit else 'abort'} transaction {event.txn}"
        case TxnEnded():
            error = f" ({event.error})" if event.error else ""
            return f"transaction {event.txn} {event.outcome}{error}"
        case Assign():
            return f"read {event.topic}-{event.partition} from offset {event.offset}, {event.isolation}"
        case Poll():
            return f"got {_records(event)} of {event.topic}-{event.partition}"
        case Watermarks():
            return f"last stable offset {event.last_stable_offset}, high watermark {event.high_watermark}"
        case WholeLog():
            return f"the log of {event.topic}-{event.partition}, {len(event.entries)} entries"
        case Fault():
            return event.what
        case Begin():
            return f"begin transaction {event.txn}"
        case PowerLoss():
            return "power was lost"
        case Rest():
            return "all is at rest"


def _place(place: Sequence[Any]) -> str:
    topic, partition, offset = place
    return f"{topic}-{partition} offset {offset}"


def _records(poll: Poll) -> str:
    if not poll.records:
        return "no records"
    if len(poll.records) == 1:
        offset, value = poll.records[0]
        return f"{value} at offset {offset}"
    return f"{len(poll.records)} records, offsets {poll.records[0][0]} to {poll.records[-1][0]},"
