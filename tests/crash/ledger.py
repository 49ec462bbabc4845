"""A record of the broker's promises to its clients, kept outside the broker, and the check that it kept them.

A client opens an `Entry` before each transaction and notes how it ended: as the broker said, or unknown because the
broker died before it answered. The value of every record says which entry it belongs to, so the records that a
read_committed reader gets can be compared with the ledger:

    checker = Checker(ledger)
    before = ledger.over()                       # Promises so far; clients get more of them during the read.
    anomalies = checker.check(before, seen)      # `seen`: every committed record, in partition order.

`check_pipeline` does the same for a consume-process-produce loop and its group's offsets.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from enum import Enum
from typing import NamedTuple

KEYS = 6  # For each writer, in a compacted topic.


class Outcome(Enum):
    OPEN = "open"  # Not decided yet.
    COMMITTED = "committed"  # The broker said so.
    ABORTED = "aborted"  # The broker said so, or was never asked to commit.
    UNKNOWN = "unknown"  # It is over, but the broker died before it said how.


class Seen(NamedTuple):
    """One record that a read_committed reader got."""

    topic: str
    partition: int
    offset: int
    value: str


class Mark(NamedTuple):
    """The beginning of a record's value, which says who wrote it. The writer chooses what follows the `|`."""

    writer: str
    number: int  # Of the writer's transaction.
    place: int  # Of the record in its transaction.

    def value(self, payload: str = "") -> str:
        return f"{self.writer}:{self.number}:{self.place}|{payload}"


def decode_value(value: str) -> tuple[Mark, str]:
    mark, _, payload = value.partition("|")
    writer, number, place = mark.rsplit(":", 2)
    return Mark(writer, int(number), int(place)), payload


class Anomaly(NamedTuple):
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class Entry:
    """One transaction. `topics[i]` is where the record with place `i` goes."""

    __slots__ = ("number", "outcome", "topics", "writer")

    def __init__(self, writer: str, number: int) -> None:
        self.writer = writer
        self.number = number
        self.topics: list[str] = []
        self.outcome = Outcome.OPEN

    def write(self, topic: str, payload: str = "") -> str:
        """Note that a record is about to be sent to `topic`; return the value to send."""
        self.topics.append(topic)
        return Mark(self.writer, self.number, len(self.topics) - 1).value(payload)

    def ask(self) -> None:
        """Note that the broker is about to be asked to commit: from here on others may read the records."""

    def end(self, outcome: Outcome) -> None:
        assert self.outcome is Outcome.OPEN, f"{self} is over already"
        assert outcome is not Outcome.OPEN
        self.outcome = outcome

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.writer} ({self.outcome.value}, {len(self.topics)} records)"


class Ledger:
    """All transactions of a run. Each writer has its own thread and touches its own entries only."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}
        self._lock = threading.Lock()

    def open(self, writer: str) -> Entry:
        with self._lock:
            mine = self._entries.setdefault(writer, [])
            entry = self._new_entry(writer, len(mine))
            mine.append(entry)
            return entry

    def _new_entry(self, writer: str, number: int) -> Entry:
        return Entry(writer, number)

    def find(self, mark: Mark) -> Entry | None:
        mine = self._entries.get(mark.writer, [])
        return mine[mark.number] if mark.number < len(mine) else None

    def over(self) -> list[Entry]:
        """The transactions that have ended by now."""
        return [entry for entry in self.all() if entry.outcome is not Outcome.OPEN]

    def all(self) -> list[Entry]:
        with self._lock:
            return [entry for mine in self._entries.values() for entry in list(mine)]

    def count(self) -> dict[Outcome, int]:
        counts = dict.fromkeys(Outcome, 0)
        for entry in self.all():
            counts[entry.outcome] += 1
        return counts


class Checker:
    """Compares records with the ledger, again and again: a transaction that was seen once must stay visible.

    `forgetful` are topics that do not keep every record; see `check_compacted` and `check_retained`.
    """

    def __init__(self, ledger: Ledger, forgetful: Set[str] = frozenset()) -> None:
        self._ledger = ledger
        self._forgetful = forgetful
        self._is_visible: dict[tuple[str, int], bool] = {}  # Transactions of unknown outcome, as first seen.

    def check(self, over: Iterable[Entry], seen: Iterable[Seen]) -> list[Anomaly]:
        """`over` are the transactions that had ended before the reading of `seen` began."""
        seen = list(seen)
        found, places = self._check_records(seen)
        for entry in over:
            found += self._check_entry(entry, places.get((entry.writer, entry.number), set()))
        return found + check_order(seen)

    def _check_records(self, seen: list[Seen]) -> tuple[list[Anomaly], dict[tuple[str, int], set[int]]]:
        """Check record by record; return the anomalies, and which places of each transaction were seen."""
        found = []
        places: dict[tuple[str, int], set[int]] = defaultdict(set)
        for record in seen:
            mark, _ = decode_value(record.value)
            entry = self._ledger.find(mark)
            if entry is None or mark.place >= len(entry.topics) or entry.topics[mark.place] != record.topic:
                found.append(Anomaly("invented", f"no client wrote {record}"))
                continue
            if entry.outcome is Outcome.ABORTED:
                found.append(Anomaly("aborted read", f"{record} is of {entry}"))
            mine = places[mark.writer, mark.number]
            if mark.place in mine:
                found.append(Anomaly("duplicate", f"{record} was read before"))
            mine.add(mark.place)
        return found, places

    def _check_entry(self, entry: Entry, places: set[int]) -> list[Anomaly]:
        """All or no records are visible; all if the broker said so; and the same as at the first check."""
        places = {place for place in places if entry.topics[place] not in self._forgetful}
        missing = [
            topic for place, topic in enumerate(entry.topics) if place not in places and topic not in self._forgetful
        ]
        if entry.outcome is Outcome.COMMITTED:
            return [Anomaly("lost", f"{entry} lacks its records to {missing}")] if missing else []
        if places and missing:
            return [Anomaly("torn", f"{entry} lacks its records to {missing}")]
        if entry.outcome is Outcome.UNKNOWN:
            is_visible = self._is_visible.setdefault((entry.writer, entry.number), bool(places))
            if is_visible != bool(places):
                change = "vanished" if is_visible else "appeared"
                return [Anomaly("changed", f"{entry} {change} after it was over")]
        return []


def check_order(seen: Iterable[Seen]) -> list[Anomaly]:
    """Within a partition, the records of one writer come in the order in which it wrote them."""
    found = []
    last: dict[tuple[str, int, str], tuple[Mark, Seen]] = {}
    for record in seen:
        mark, _ = decode_value(record.value)
        where = (record.topic, record.partition, mark.writer)
        if where in last and last[where][0] >= mark:
            found.append(Anomaly("out of order", f"{record} comes after {last[where][1]}"))
        last[where] = (mark, record)
    return found


def key_of(mark: Mark) -> str:
    """The key of a record in a compacted topic: each writer has a few of its own."""
    return f"{mark.writer}/{mark.place % KEYS}"


def check_compacted(over: Iterable[Entry], topic: str, seen: Iterable[Seen]) -> list[Anomaly]:
    """For each key, the newest committed record was read, or a newer one."""
    newest: dict[str, Mark] = {}
    for record in seen:
        mark, _ = decode_value(record.value)
        newest[key_of(mark)] = mark
    found = []
    for key, mark in _committed_by_key(over, topic).items():
        if key not in newest or newest[key] < mark:
            found.append(Anomaly("lost", f"key {key} of {topic} was written by {mark}, read is {newest.get(key)}"))
    return found


def _committed_by_key(over: Iterable[Entry], topic: str) -> dict[str, Mark]:
    return {key_of(mark): mark for mark in sorted(_committed_marks(over, topic))}


def check_retained(over: Iterable[Entry], topic: str, seen: Iterable[Seen]) -> list[Anomaly]:
    """A topic with one partition and retention loses its oldest records, and no others."""
    read = {decode_value(record.value)[0] for record in seen}
    oldest: dict[str, Mark] = {}
    for mark in read:
        oldest[mark.writer] = min(mark, oldest.get(mark.writer, mark))
    return [
        Anomaly("lost", f"{mark} is not in {topic}, though older ones are")
        for mark in _committed_marks(over, topic)
        if mark not in read and mark.writer in oldest and oldest[mark.writer] < mark
    ]


def _committed_marks(over: Iterable[Entry], topic: str) -> Iterable[Mark]:
    for entry in over:
        if entry.outcome is Outcome.COMMITTED:
            for place, written_to in enumerate(entry.topics):
                if written_to == topic:
                    yield Mark(entry.writer, entry.number, place)


def source_payload(record: Seen) -> str:
    """The payload of an output of a consume-process-produce loop: the position of its input."""
    return f"{record.partition}@{record.offset}"


def check_pipeline(
    inputs: Iterable[Seen], outputs: Iterable[Seen], committed: Mapping[int, int], *, at_rest: bool
) -> list[Anomaly]:
    """Each input below the group's committed offset has exactly one output; at rest, no other input has one.

    `committed` is the offset for each input partition, read before `inputs` and `outputs`.
    """
    found = []
    known = {source_payload(record) for record in inputs}
    done: dict[str, Seen] = {}
    last: dict[tuple[int, int], int] = {}
    for record in outputs:
        _, source = decode_value(record.value)
        partition, offset = (int(number) for number in source.split("@"))
        if source not in known:
            found.append(Anomaly("invented", f"{record} has an input that no reader gets"))
        if source in done:
            found.append(Anomaly("duplicate", f"{record} and {done[source]} have the same input"))
        done[source] = record
        if at_rest and offset >= committed.get(partition, 0):
            found.append(Anomaly("offset behind", f"{record}: the group is at {committed.get(partition)}"))
        where = (record.partition, partition)
        if last.get(where, -1) >= offset:
            found.append(Anomaly("out of order", f"{record}: its input comes before the one of offset {last[where]}"))
        last[where] = offset
    for source in sorted(known - done.keys()):
        partition, offset = (int(number) for number in source.split("@"))
        if offset < committed.get(partition, 0):
            found.append(Anomaly("skipped", f"input {source} has no output, the group is at {committed[partition]}"))
    return found
