"""The records of one producer in a partition, from marker to marker. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.verify.checkers.index import Index, Where


class MarkedRecords(NamedTuple):
    """The records that one marker ended, and the marker: "" if the log ends without one."""

    values: list[str]
    marker: str


def marked_records(index: Index, where: Where, producer_id: int, epoch: int) -> list[MarkedRecords]:
    """In the order of the log. Markers of other epochs end nothing here."""
    found: list[MarkedRecords] = []
    values: list[str] = []
    for _, kind, value, found_id, found_epoch in index.entries(where):
        if (found_id, found_epoch) != (producer_id, epoch):
            continue
        if kind == "data":
            values.append(value)
        else:
            found.append(MarkedRecords(values, kind))
            values = []
    return [*found, MarkedRecords(values, "")]
