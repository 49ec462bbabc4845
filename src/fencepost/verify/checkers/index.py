"""A history as the checkers know it: transactions, records, reads, logs and offsets. Pure.

`arranging.py` makes it. A reader without an `Assign` is taken for a read_committed one. A partition that a
read_committed reader reads after `Rest` is read to its end, so a record that no such read returned is not there.
Without such a read the `WholeLog` decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

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
    TxnOutcome,
    Watermarks,
    WholeLog,
)

# Offset, kind, value, producer id and epoch.
LogEntry = tuple[int, str, str, int, int]


class MarkedRecords(NamedTuple):
    """The records that one marker ended, and the marker: "" if the log ends without one."""

    values: list[str]
    marker: str


class RunOfRecord(NamedTuple):
    """The records that end with the same marker as a record, and those of its producer epoch before them."""

    before: MarkedRecords | None
    own: MarkedRecords


def runs_by_record(entries: Iterable[LogEntry]) -> dict[str, RunOfRecord]:
    """For each record of a log. Markers of other epochs end nothing here."""
    ended: dict[tuple[int, int], list[MarkedRecords]] = defaultdict(list)
    values: dict[tuple[int, int], list[str]] = defaultdict(list)
    for _, kind, value, producer_id, epoch in entries:
        producer = (producer_id, epoch)
        if kind == "data":
            values[producer].append(value)
        else:
            ended[producer].append(MarkedRecords(values.pop(producer, []), kind))
    for producer, left in values.items():
        ended[producer].append(MarkedRecords(left, ""))
    return {
        value: RunOfRecord(before, own)
        for runs in ended.values()
        for before, own in pairwise([None, *runs])
        if own is not None
        for value in own.values
    }


# A topic and a partition, and the same with an offset.
Where = tuple[str, int]
Place = tuple[str, int, int]
# A group, and a topic and a partition that it reads.
GroupWhere = tuple[str, str, int]
READ_UNCOMMITTED = "read_uncommitted"


class HistoryTxn:
    """A transaction as its writer noted it."""

    __slots__ = ("before", "begun", "by", "ended", "ends", "init", "number", "offsets", "sends")

    def __init__(self, by: str, number: int, init: Init | None, before: HistoryTxn | None) -> None:
        self.by = by
        self.number = number
        self.init = init
        self.before = before  # The transaction before it of the same initialised producer.
        self.begun: Begin | None = None
        self.sends: list[Send] = []
        self.offsets: list[SendOffsets] = []
        self.ends: list[End] = []
        self.ended: TxnEnded | None = None

    @property
    def asked(self) -> End | None:
        """The first request to commit it."""
        return next((end for end in self.ends if end.commit), None)

    @property
    def outcome(self) -> TxnOutcome | None:
        """None if it was never asked to commit, and no event says how it ended."""
        if self.ended is not None:
            return TxnOutcome(self.ended.outcome)
        return TxnOutcome.UNKNOWN if self.asked is not None else None

    @property
    def error(self) -> str:
        return self.ended.error if self.ended is not None else ""

    @property
    def proof(self) -> tuple[Event, ...]:
        """How it began and ended."""
        found: list[Event | None] = [self.begun, *self.ends, self.ended]
        return tuple(event for event in found if event is not None)

    def __str__(self) -> str:
        how = "open" if self.outcome is None else self.outcome.value
        return f"transaction {self.number} of {self.by} ({how}, {len(self.sends)} records)"


class RecordFate(NamedTuple):
    """What became of a record in the log: the marker that ended its transaction, "" if there is none."""

    where: Where
    offset: int
    producer_id: int
    epoch: int
    marker: str = ""
    marker_epoch: int = -1
    marker_offset: int = -1

    @property
    def own_marker(self) -> str:
        """The marker, if it has the epoch of the record: a newer epoch is that of another producer, or of a timeout."""
        return self.marker if self.marker_epoch == self.epoch else ""


class Index:
    """`header` says which topics there are; the events are in the order of their times."""

    def __init__(self, header: Header, events: list[Event]) -> None:
        self.header = header
        self.events = events
        self.txns: dict[tuple[str, int], HistoryTxn] = {}
        self.sends: dict[str, Send] = {}
        self.acks: dict[str, Acked] = {}
        self.inits: list[Init] = []
        # What each reader did in each partition.
        self.readings: dict[tuple[str, str, int], list[Assign | Poll]] = defaultdict(list)
        self.committed_polls: list[Poll] = []
        # The first read of each record by a read_committed reader.
        self.seen: dict[str, tuple[Poll, int]] = {}
        self.logs: dict[Where, list[WholeLog]] = defaultdict(list)
        self.faults: list[Fault] = []
        self.power_losses: list[PowerLoss] = []
        self.rest: Rest | None = None
        self.answers: list[Committed] = []  # Before the first Rest.
        # The last answers after Rest.
        self.watermarks: dict[Where, Watermarks] = {}
        self.committed: dict[GroupWhere, tuple[int, Committed]] = {}
        self.last_polls: dict[Where, list[Poll]] = {}

    def txn_of(self, sent: Send | SendOffsets) -> HistoryTxn | None:
        return self.txns[sent.by, sent.txn] if sent.txn is not None else None

    def proof_of(self, send: Send) -> tuple[Event, ...]:
        """How the transaction of a record began and ended, if it has one, and the record."""
        txn = self.txn_of(send)
        return (*(txn.proof if txn is not None else ()), send)

    def outcome_of(self, value: str) -> TxnOutcome | None:
        """The outcome of a record: of its transaction; without one, committed if it was acknowledged."""
        send = self.sends[value]
        txn = self.txn_of(send)
        if txn is not None:
            return txn.outcome
        return TxnOutcome.COMMITTED if value in self.acks else TxnOutcome.UNKNOWN

    def is_binding(self, ack: Acked) -> bool:
        """Whether the broker must keep a record that it acknowledged. A power loss excuses it before the commit."""
        if not self.power_losses:
            return True
        txn = self._txn_of(ack.value)
        return txn is not None and txn.outcome is TxnOutcome.COMMITTED

    def keeps_all(self, topic: str) -> bool:
        """Whether a topic has every committed record for ever."""
        return topic not in self.header.cleanup

    def entries(self, where: Where) -> Iterator[LogEntry]:
        """The log of a partition: offset, kind, value, producer id and epoch."""
        for event in self.logs.get(where, ()):
            yield from event.entries  # type: ignore[misc]  # Their fields have types only in the documentation.

    @cached_property
    def places(self) -> dict[str, Place]:
        """Where each record is: as the log says, or a read_committed reader, or the acknowledgement."""
        found = {
            value: (ack.topic, ack.partition, ack.offset)
            for value, ack in self.acks.items()
            if ack.offset >= 0 and self.is_binding(ack) and value not in self.taken_for_duplicates
        }
        for value, (poll, offset) in self.seen.items():
            found[value] = (poll.topic, poll.partition, offset)
        for value, fate in self.fates.items():
            found.setdefault(value, (*fate.where, fate.offset))
        return found

    @cached_property
    def taken_for_duplicates(self) -> dict[str, str]:
        """Acknowledged records that are nowhere, and the record that the log has at their offset."""
        claimed: dict[Place, list[str]] = defaultdict(list)
        for value, ack in self.acks.items():
            if value not in self.seen and value not in self.fates and self.is_binding(ack):
                claimed[ack.topic, ack.partition, ack.offset].append(value)
        return {
            value: other
            for other, fate in (self.fates.items() if claimed else ())
            for value in claimed.get((*fate.where, fate.offset), ())
            if self._may_share_a_sequence(other, value)
        }

    def _may_share_a_sequence(self, earlier: str, later: str) -> bool:
        """Whether a producer of version 1 gave up a record, and can have given its sequence number to a later one."""
        first, second = self._txn_of(earlier), self._txn_of(later)
        if first is None or second is None or first.init is None or first.init.version > 1:
            return False
        is_given_up = earlier not in self.acks and first.outcome is not TxnOutcome.COMMITTED
        return is_given_up and first.init is second.init and first.number < second.number

    def _txn_of(self, value: str) -> HistoryTxn | None:
        send = self.sends.get(value)
        return self.txn_of(send) if send is not None else None

    @cached_property
    def fates(self) -> dict[str, RecordFate]:
        """What became of each record that is in a log."""
        found: dict[str, RecordFate] = {}
        for where in self.logs:
            without_marker: dict[int, list[str]] = defaultdict(list)
            for offset, kind, value, producer_id, epoch in self.entries(where):
                if kind == "data":
                    found[value] = RecordFate(where, offset, producer_id, epoch)
                    without_marker[producer_id].append(value)
                    continue
                for ended in without_marker.pop(producer_id, ()):
                    found[ended] = found[ended]._replace(marker=kind, marker_epoch=epoch, marker_offset=offset)
        return found

    @cached_property
    def runs(self) -> dict[str, RunOfRecord]:
        """For each record that is in a log: the records of its producer epoch around it, from marker to marker."""
        return {value: run for where in self.logs for value, run in runs_by_record(self.entries(where)).items()}

    def is_written_after(self, where: Where, offset: int, at: int) -> bool:
        """Whether the log proves that an offset was written after a time: a record before it was sent after that."""
        offsets, latest = self._sent_until.get(where, ([], []))
        before = bisect_left(offsets, offset)
        return before > 0 and latest[before - 1] > at

    @cached_property
    def _sent_until(self) -> dict[Where, tuple[list[int], list[int]]]:
        """For each log: the offsets of its records, and when the last of the records up to there was sent."""
        found: dict[Where, tuple[list[int], list[int]]] = {}
        for where in self.logs:
            sent = [
                (offset, self.sends[value].at) for offset, _, value, _, _ in self.entries(where) if value in self.sends
            ]
            found[where] = [offset for offset, _ in sent], list(accumulate((at for _, at in sent), max))
        return found

    @cached_property
    def at_rest(self) -> dict[Where, dict[str, int]]:
        """For each partition that was read at rest: the records that are visible there, with their offsets."""
        found: dict[Where, dict[str, int]] = {}
        for where, polls in self.last_polls.items():
            found[where] = {value: offset for poll in polls for offset, value in poll.records}
        unread: dict[Where, dict[str, int]] = {where: {} for where in self.logs.keys() - found.keys()}
        for value, fate in self.fates.items() if unread else ():
            is_plain = value not in self.sends or self.sends[value].txn is None
            if fate.where in unread and (is_plain or fate.marker == "commit"):
                unread[fate.where][value] = fate.offset
        return found | unread

    @cached_property
    def visible_at_rest(self) -> frozenset[str]:
        return frozenset(value for values in self.at_rest.values() for value in values)

    @cached_property
    def places_written(self) -> list[Where]:
        """The partitions that are known to have records."""
        return sorted({place[:2] for place in self.places.values()})

    def is_missing(self, send: Send) -> bool:
        """Whether every place where a record may be was read at rest, and it was not there."""
        if send.value in self.visible_at_rest or not self.keeps_all(send.topic):
            return False
        if send.value in self.taken_for_duplicates:
            return False  # Another checker's.
        place = self.places.get(send.value)
        if place is None:
            return self._are_read(send)
        stuck = self.stuck(place[:2])
        return place[:2] in self.at_rest and (stuck is None or place[2] < stuck)

    def is_read(self, where: Where) -> bool:
        """Whether a partition was read at rest, up to its end."""
        return where in self.at_rest and self.stuck(where) is None

    def _are_read(self, send: Send) -> bool:
        """Whether all partitions that a record without a known place can be in were read, up to their ends."""
        count = self.header.topics.get(send.topic, 0)
        partitions = [send.partition] if send.partition >= 0 else range(count)
        wanted = [(send.topic, partition) for partition in partitions]
        return bool(wanted) and all(map(self.is_read, wanted))

    def stuck(self, where: Where) -> int | None:
        """The last stable offset of a partition, if it is below the high watermark at rest."""
        found = self.watermarks.get(where)
        return None if found is None or found.last_stable_offset >= found.high_watermark else found.last_stable_offset
