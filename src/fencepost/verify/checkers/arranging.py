"""Reads the events of a history once, and makes the index of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fencepost.verify.checkers.index import READ_UNCOMMITTED, HistoryTxn, Index
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
    NotAHistory,
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


def arrange(header: Header, events: Iterable[Event]) -> Index:
    """The index of a history. Raises NotAHistory if a field of an event has a value that it cannot have."""
    in_file = list(events)
    for line, event in enumerate(in_file, 2):
        if not isinstance(event.at, int):
            raise NotAHistory(line, f"the time is {event.at!r}, not a number of nanoseconds")
    arranging = Arranging(Index(header, sorted(in_file, key=lambda event: event.at)))
    for event in arranging.index.events:
        try:
            arranging.take(event)
        except (TypeError, ValueError) as e:
            line = next(n for n, found in enumerate(in_file, 2) if found is event)
            raise NotAHistory(line, f"a field has a value that it cannot have: {e}") from None
    return arranging.index


class Arranging:
    """Takes one event after the other into an index."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._isolation: dict[tuple[str, str, int], str] = {}
        self._last_init: dict[str, Init] = {}
        self._last_txn: dict[str, HistoryTxn] = {}
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            Init: self._take_init,
            Begin: self._take_begin,
            Send: self._take_send,
            Acked: self._take_acked,
            SendOffsets: self._take_offsets,
            End: self._take_end,
            TxnEnded: self._take_ended,
            Assign: self._take_assign,
            Poll: self._take_poll,
            Committed: self._take_committed,
            Watermarks: self._take_watermarks,
            WholeLog: self._take_log,
            Fault: index.faults.append,
            PowerLoss: index.power_losses.append,
            Rest: self._take_rest,
        }

    def take(self, event: Event) -> None:
        self._takers[type(event)](event)

    def _txn(self, by: str, number: int) -> HistoryTxn:
        found = self.index.txns.get((by, number))
        if found is None:
            before, init = self._last_txn.get(by), self._last_init.get(by)
            found = HistoryTxn(by, number, init, before if before is not None and before.init is init else None)
            self.index.txns[by, number] = self._last_txn[by] = found
        return found

    def _take_init(self, event: Init) -> None:
        self.index.inits.append(event)
        self._last_init[event.by] = event

    def _take_begin(self, event: Begin) -> None:
        self._txn(event.by, event.txn).begun = event

    def _take_send(self, event: Send) -> None:
        self.index.sends[event.value] = event
        if event.txn is not None:
            self._txn(event.by, event.txn).sends.append(event)

    def _take_acked(self, event: Acked) -> None:
        self.index.acks[event.value] = event

    def _take_offsets(self, event: SendOffsets) -> None:
        self._txn(event.by, event.txn).offsets.append(event)

    def _take_end(self, event: End) -> None:
        self._txn(event.by, event.txn).ends.append(event)

    def _take_ended(self, event: TxnEnded) -> None:
        TxnOutcome(event.outcome)  # Raises ValueError for any other word.
        self._txn(event.by, event.txn).ended = event

    def _take_assign(self, event: Assign) -> None:
        reading = (event.by, event.topic, event.partition)
        self.index.readings[reading].append(event)
        self._isolation[reading] = event.isolation
        if self.index.rest is not None and event.isolation != READ_UNCOMMITTED:
            # It is read, even if no poll returns a record.
            self.index.last_polls.setdefault((event.topic, event.partition), [])

    def _take_poll(self, event: Poll) -> None:
        reading = (event.by, event.topic, event.partition)
        self.index.readings[reading].append(event)
        if self._isolation.get(reading) == READ_UNCOMMITTED:
            return
        self.index.committed_polls.append(event)
        seen = self.index.seen
        for offset, value in event.records:
            if value not in seen:
                seen[value] = (event, offset)
        if self.index.rest is not None:
            self.index.last_polls.setdefault((event.topic, event.partition), []).append(event)

    def _take_committed(self, event: Committed) -> None:
        if self.index.rest is None:
            self.index.answers.append(event)
            return
        for topic, partition, offset in event.offsets:
            self.index.committed[event.group, topic, partition] = (offset, event)

    def _take_watermarks(self, event: Watermarks) -> None:
        if self.index.rest is not None:
            self.index.watermarks[event.topic, event.partition] = event

    def _take_log(self, event: WholeLog) -> None:
        self.index.logs[event.topic, event.partition].append(event)

    def _take_rest(self, event: Rest) -> None:
        """A run may rest several times: what was read at the last one counts."""
        index = self.index
        index.rest = event
        for found in (index.last_polls, index.logs, index.watermarks, index.committed):
            found.clear()
