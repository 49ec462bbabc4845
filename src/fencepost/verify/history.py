"""A run as its clients saw it: what they asked for, what they were answered, and what they read. Pure.

A history is a file of JSON lines. The first one is the `Header`, each other one is an event with its time and the
client that noted it. A client notes a request before it sends it, and the answer when it has it, so a request without
an answer is in doubt. Times are nanoseconds of one monotonic clock, which all processes of a machine share.

    {"event": "begin", "at": 1200, "by": "writer-0", "txn": 17}
    {"event": "send", "at": 1300, "by": "writer-0", "txn": 17, "value": "writer-0:17:0", "topic": "tea", "partition": 1}
    {"event": "end", "at": 1400, "by": "writer-0", "txn": 17, "commit": true}
    {"event": "ended", "at": 1500, "by": "writer-0", "txn": 17, "outcome": "committed"}
    {"event": "poll", "at": 1600, "by": "reader-1", "topic": "tea", "partition": 1, "records": [[40, "writer-0:17:0"]]}

The value of a record is unique in the run: the checkers know records by it. A transaction is known by its writer and
its number.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

FORMAT = 1
# How long the clients of a run wait for an answer before they ask again. The checkers know late requests by it.
CLIENT_PATIENCE_MS = 3000


class TxnOutcome(StrEnum):
    COMMITTED = "committed"  # The broker said so.
    ABORTED = "aborted"  # The broker said so, or it was never asked to commit, and cannot be asked any more.
    UNKNOWN = "unknown"  # It is over, and no answer says how.


class Header(NamedTuple):
    """`what` says what was run, for the report; `topics` has the number of partitions of each topic.

    `cleanup` has the topics that do not keep every record, with their policy: a "compact" one keeps the newest record
    of each key, a "delete" one loses its oldest records. `copies` has the groups whose programs make one output of
    every input, in the order of the inputs, each with the topic of its outputs.
    """

    seed: int
    what: dict[str, Any]
    topics: dict[str, int]
    format: int = FORMAT
    cleanup: Mapping[str, str] = {}
    copies: Mapping[str, str] = {}


class Init(NamedTuple):
    """A producer was initialised. Not every client shows its producer id and epoch: they are -1 then."""

    at: int
    by: str
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    version: int = 1  # The transaction version that the client uses.


class Begin(NamedTuple):
    at: int
    by: str
    txn: int


class Send(NamedTuple):
    """A record is about to be sent."""

    at: int
    by: str
    txn: int | None  # None without a transaction.
    value: str
    topic: str
    partition: int = -1  # -1 if the client chooses it.
    source: Sequence[Any] | None = None  # Topic, partition and offset of the input that it was made from.
    key: str | None = None  # Needed for topics that are compacted.


class Acked(NamedTuple):
    """The broker acknowledged a record."""

    at: int
    by: str
    value: str
    topic: str
    partition: int
    offset: int


class SendOffsets(NamedTuple):
    """Offsets of a group are about to be sent within a transaction: topic, partition, offset."""

    at: int
    by: str
    txn: int
    group: str
    offsets: Sequence[Sequence[Any]]


class End(NamedTuple):
    """The broker is about to be asked to commit, or to abort."""

    at: int
    by: str
    txn: int
    commit: bool


class TxnEnded(NamedTuple):
    """A transaction is over. `error` is the answer that ended it, by Kafka's name, such as PRODUCER_FENCED."""

    at: int
    by: str
    txn: int
    outcome: str  # A `TxnOutcome`.
    error: str = ""


class Assign(NamedTuple):
    """A reader begins to read a partition at an offset: its next poll continues there."""

    at: int
    by: str
    isolation: str  # read_committed or read_uncommitted.
    topic: str
    partition: int
    offset: int


class Poll(NamedTuple):
    """Records of one partition, in the order in which the reader got them: offset and value."""

    at: int
    by: str
    topic: str
    partition: int
    records: Sequence[Sequence[Any]]
    position: int = -1  # Where the reader continues; -1 if it does not say, then behind the last record.


class Committed(NamedTuple):
    """The answer to a question for the committed offsets of a group: topic, partition, offset."""

    at: int
    by: str
    group: str
    offsets: Sequence[Sequence[Any]]


class Watermarks(NamedTuple):
    at: int
    by: str
    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int


class WholeLog(NamedTuple):
    """A whole partition as it is in the log, when all is at rest: offset, kind, value, producer id and epoch.

    The kind is "data", "commit" or "abort"; a marker has no value. A long log is several events.
    """

    at: int
    by: str
    topic: str
    partition: int
    entries: Sequence[Sequence[Any]]


class Fault(NamedTuple):
    """Something was disturbed on purpose, for so many seconds."""

    at: int
    by: str
    what: str
    seconds: float = 0.0


class PowerLoss(NamedTuple):
    """The machine of a broker lost its power. A record that is in no committed transaction may be gone, acknowledged or
    not, and its offset may be used again. A reader that goes on is assigned again, behind the last record that it got.
    """

    at: int
    by: str


class Rest(NamedTuple):
    """All writers have ended, and every transaction is over or has timed out: reads from here on are the last ones.

    A partition that a read_committed reader is assigned to, or polls, from here on is read from its beginning to its
    end: a record that it does not return is missing.
    """

    at: int
    by: str


Event = (
    Init
    | Begin
    | Send
    | Acked
    | SendOffsets
    | End
    | TxnEnded
    | Assign
    | Poll
    | Committed
    | Watermarks
    | WholeLog
    | Fault
    | PowerLoss
    | Rest
)
EVENTS: dict[str, type[Any]] = {
    "init": Init,
    "begin": Begin,
    "send": Send,
    "acked": Acked,
    "offsets": SendOffsets,
    "end": End,
    "ended": TxnEnded,
    "assign": Assign,
    "poll": Poll,
    "committed": Committed,
    "watermarks": Watermarks,
    "log": WholeLog,
    "fault": Fault,
    "power-loss": PowerLoss,
    "rest": Rest,
}
NAMES = {kind: name for name, kind in EVENTS.items()}


class NotAHistory(Exception):
    """A line that is no event, or a format that this version does not read."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


def encode_header(header: Header) -> str:
    return json.dumps({"event": "header", **header._asdict()}, separators=(",", ":")) + "\n"


def encode(event: Event) -> str:
    """One line, with its end."""
    return json.dumps({"event": NAMES[type(event)], **event._asdict()}, separators=(",", ":")) + "\n"


def decode(lines: Iterable[str | bytes]) -> tuple[Header, Iterator[Event]]:
    """The header, and the events in the order of the lines. Raises NotAHistory, also during the iteration.

    A last line without its end was being written when the client was killed: it is no event.
    """
    numbered = enumerate(lines, 1)
    number, first = next(numbered, (1, "{}"))
    found = _fields(number, first)
    if found.pop("event", None) != "header":
        raise NotAHistory(number, "the first line is no header of a history")
    if found.get("format") != FORMAT:
        raise NotAHistory(number, f"the format is {found.get('format')}, this version reads {FORMAT}")
    return _made(number, Header, found), _events(numbered)


def _events(numbered: Iterable[tuple[int, str | bytes]]) -> Iterator[Event]:
    for number, line in numbered:
        if line[-1:] not in ("\n", b"\n"):
            return
        found = _fields(number, line)
        name = found.pop("event", None)
        kind = EVENTS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise NotAHistory(number, f"{name!r} is no event")
        yield _made(number, kind, found)


def _fields(number: int, line: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as e:
        raise NotAHistory(number, f"no JSON: {e}") from None
    if not isinstance(found, dict):
        raise NotAHistory(number, "no JSON object")
    return found


def _made(number: int, kind: type[Any], found: dict[str, Any]) -> Any:
    try:
        return kind(**found)
    except TypeError:
        given, known = sorted(found), ", ".join(kind._fields)
        raise NotAHistory(number, f"the fields are {', '.join(given)}; this event has {known}") from None


_AT = re.compile(rb'"at":\s*(-?\d+)')


def merge(parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """The lines of all parts in the order of their times. Each part is in this order already.

    The last line of a client that was killed may be incomplete: it is left out.
    """
    return (line for _, _, line in heapq.merge(*(_timed(number, part) for number, part in enumerate(parts))))


def _timed(number: int, part: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    for line in part:
        if line.endswith(b"\n"):
            found = _AT.search(line)
            assert found is not None, f"no time in {line!r}"
            yield int(found[1]), number, line
