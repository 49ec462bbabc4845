"""Where reading starts in a partition: `earliest`, `latest`, an offset, the last records, or a time. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition


class StartKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "an offset"
    LAST = "so many offsets before the end"
    TIME = "the first record at or after a time, in milliseconds since 1970"


class Start(NamedTuple):
    kind: StartKind
    number: int = 0


def start_offset(start: Start, where: NamedPartition, first: int, end: int, by_time: int = -1) -> tuple[int, str]:
    """The offset to begin with, within [first, end], and a remark if it is not what was asked for.

    `by_time` is the answer of ListOffsets for a time: -1 if there is no record that late.
    """
    if start.kind is StartKind.EARLIEST:
        return first, ""
    if start.kind is StartKind.LATEST:
        return end, ""
    if start.kind is StartKind.LAST:
        return max(first, end - start.number), ""
    if start.kind is StartKind.TIME:
        return (end if by_time < 0 else min(max(by_time, first), end)), ""
    if start.number < first:
        return first, f"{where} has no offset {start.number} any more: it starts at {first}"
    if start.number > end:
        return end, f"{where} has no offset {start.number} yet: it ends before {end}"
    return start.number, ""
