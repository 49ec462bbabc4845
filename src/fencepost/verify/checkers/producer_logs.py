"""The records of one producer epoch in a partition, from marker to marker. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

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
