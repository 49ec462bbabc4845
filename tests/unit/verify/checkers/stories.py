"""Histories as short stories: one line for each event, `CLIENT WORD …`, in the order of time.

w begin 1             w sends a to tea-0 [of tea-0@4 | key k]   w acked a tea-0@7
w commits 1                w aborts 1                           w ended 1 committed [ERROR]
w init ID PID EPOCH VERSION        w offsets 1 g tea-0@5        r assign tea-0@0 read_committed
r reads tea-0: 7=a 8=b [to 12]     g is tea-0@5                 tea-0 lso 5 hw 9
log tea-0: 0=a/1.0 1=commit/1.0    fault drop EndTxn reply      power loss          rest
4s pass

Before the first event, `tea keeps compact` and `g copies cup` are lines of the header.
"""

from __future__ import annotations

from typing import Any

from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import (
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
    Watermarks,
    WholeLog,
)

TOPICS = {"tea": 2, "cup": 2}


def told(story: str) -> list[Event]:
    """The events of a story. A record that is sent after `begin` is in that transaction."""
    open_txns: dict[str, int] = {}
    events: list[Event] = []
    passed_ns = 0
    lines = [words for line in story.splitlines() if (words := line.split())]
    for at, words in enumerate(lines, 1):
        if words[-1] == "pass":
            passed_ns += int(words[0].removesuffix("s")) * 10**9
        elif not _is_of_header(words):
            events.append(_event(at + passed_ns, words, open_txns))
    return events


def header_of(story: str) -> Header:
    lines = [words for line in story.strip().splitlines() if _is_of_header(words := line.split())]
    found = {verb: {who: what for who, said, what in lines if said == verb} for verb in ("keeps", "copies")}
    return Header(1, {}, TOPICS, cleanup=found["keeps"], copies=found["copies"])


def _is_of_header(words: list[str]) -> bool:
    return len(words) == 3 and words[1] in ("keeps", "copies")


def found_in(story: str) -> list[Anomaly]:
    return check_history(arrange(header_of(story), told(story)))


def kinds_in(story: str) -> list[str]:
    return [anomaly.kind for anomaly in found_in(story)]


def _where(text: str) -> tuple[str, int]:
    topic, partition = text.strip(":").rsplit("-", 1)
    return topic, int(partition)


def _place(text: str) -> list[Any]:
    where, offset = text.split("@")
    return [*_where(where), int(offset)]


def _entry(text: str) -> list[Any]:
    offset, rest = text.split("=")
    what, producer = rest.split("/")
    producer_id, epoch = producer.split(".")
    is_marker = what in ("commit", "abort")
    return [int(offset), what if is_marker else "data", "" if is_marker else what, int(producer_id), int(epoch)]


def _record(text: str) -> list[Any]:
    offset, value = text.split("=")
    return [int(offset), value]


def _event(at: int, words: list[str], open_txns: dict[str, int]) -> Event:
    match words:
        case ["rest"]:
            return Rest(at, "main")
        case ["power", "loss"]:
            return PowerLoss(at, "main")
        case ["fault", *what]:
            return Fault(at, "main", " ".join(what))
        case ["log", where, *entries]:
            return WholeLog(at, "main", *_where(where), [_entry(entry) for entry in entries])
        case [where, "lso", lso, "hw", high_watermark]:
            return Watermarks(at, "main", *_where(where), int(lso), int(high_watermark))
        case [group, "is", place]:
            return Committed(at, "main", group, [_place(place)])
        case [by, "init", transactional_id, producer_id, epoch, version]:
            return Init(at, by, transactional_id, int(producer_id), int(epoch), int(version))
        case [by, "begin", txn]:
            open_txns[by] = int(txn)
            return Begin(at, by, int(txn))
        case [by, "sends", value, "to", where, "key", key]:
            return Send(at, by, open_txns.get(by), value, *_where(where), None, key)
        case [by, "sends", value, "to", where, *source]:
            made_from = _place(source[1]) if source else None
            return Send(at, by, open_txns.get(by), value, *_where(where), made_from)
        case [by, "acked", value, place]:
            return Acked(at, by, value, *_place(place))
        case [by, "offsets", txn, group, place]:
            return SendOffsets(at, by, int(txn), group, [_place(place)])
        case [by, "commits" | "aborts" as how, txn]:
            return End(at, by, int(txn), how == "commits")
        case [by, "ended", txn, outcome, *error]:
            open_txns.pop(by, None)
            return TxnEnded(at, by, int(txn), outcome, *error)
        case [by, "assign", place, isolation]:
            return Assign(at, by, isolation, *_place(place))
        case [by, "reads", where, *records, "to", position]:
            return Poll(at, by, *_where(where), [_record(record) for record in records], int(position))
        case [by, "reads", where, *records]:
            return Poll(at, by, *_where(where), [_record(record) for record in records])
    raise AssertionError(f"no event: {' '.join(words)}")
