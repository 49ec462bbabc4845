"""Which transactions of a partition were committed, which were aborted, and which are open. Pure.

The records of a transaction end at the next marker of the same producer id in the same partition; no other marker and
no epoch matters (with TV2, the epoch of the marker is one higher). Two sources tell the outcome of a record batch:

- a marker that was read, from this chunk or from a scan ahead (`MarkerIndex`);
- below the last stable offset every transaction has ended, and the aborted index that comes with a read_committed
  Fetch names those that were aborted (`AbortedSince`).

Above the last stable offset, a transaction without a marker is open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from fencepost.protocol.batch import BatchHeader, Marker

NOTHING_IS_STABLE = -1


class Fate(Enum):
    """The outcome of a record."""

    PLAIN = "plain"  # Written outside any transaction.
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"  # It has ended, but its marker was deleted before it was read.


class LogBatch(NamedTuple):
    """The header of a record batch, and the marker in it if it is a control batch that has one."""

    header: BatchHeader
    marker: Marker | None = None


class AbortedSince(NamedTuple):
    """An entry of the aborted index."""

    producer_id: int
    first_offset: int


class MarkerIndex:
    """The markers of a partition that were read, by producer id, in the order of their offsets."""

    def __init__(self, batches: Iterable[LogBatch] = ()) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._commits: dict[int, list[bool]] = {}
        for batch in batches:
            self.add(batch)

    def add(self, batch: LogBatch) -> None:
        """Take the next batch of the log; only markers matter."""
        if batch.marker is not None:
            self._offsets.setdefault(batch.marker.producer_id, []).append(batch.header.base_offset)
            self._commits.setdefault(batch.marker.producer_id, []).append(batch.marker.commit)

    def end_of(self, header: BatchHeader) -> Fate | None:
        """The outcome of a transactional batch, by the next marker of its producer; None if there is none."""
        offsets = self._offsets.get(header.producer_id)
        if offsets is None:
            return None
        at = bisect_right(offsets, header.last_offset)
        if at == len(offsets):
            return None
        return Fate.COMMITTED if self._commits[header.producer_id][at] else Fate.ABORTED


def decide_fates(
    batches: Sequence[LogBatch],
    markers: MarkerIndex,
    aborted: Iterable[AbortedSince] = (),
    stable_end: int = NOTHING_IS_STABLE,
) -> list[Fate | None]:
    """The outcome of each batch of a chunk, in the order of the log; None for a control batch.

    `aborted` must cover the chunk below `stable_end`, the last stable offset; `markers` may know less than everything.
    """
    left = sorted(aborted, key=lambda txn: txn.first_offset)
    fates: list[Fate | None] = []
    active: set[int] = set()  # The producers that are within an aborted transaction.
    at = 0
    for header, marker in batches:
        while at < len(left) and left[at].first_offset <= header.last_offset:
            active.add(left[at].producer_id)
            at += 1
        if header.is_control:
            if marker is not None and not marker.commit:
                active.discard(marker.producer_id)
            fates.append(None)
        elif not header.is_transactional:
            fates.append(Fate.PLAIN)
        elif (fate := markers.end_of(header)) is not None:
            fates.append(fate)
        elif header.last_offset < stable_end:
            fates.append(Fate.ABORTED if header.producer_id in active else Fate.COMMITTED)
        else:
            fates.append(Fate.OPEN)
    return fates


class OpenOffsets(NamedTuple):
    """The offsets of one producer that were shown as open."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    record_count: int


class OpenTracker:
    """The open transactions of one partition that were shown, until their markers arrive."""

    def __init__(self) -> None:
        self._open: dict[int, OpenOffsets] = {}

    def __len__(self) -> int:
        return len(self._open)

    def show(self, header: BatchHeader, first_offset: int, last_offset: int, record_count: int) -> None:
        """Records of an open transaction were shown."""
        seen = self._open.get(header.producer_id)
        self._open[header.producer_id] = OpenOffsets(
            header.producer_id,
            header.producer_epoch,
            first_offset if seen is None else seen.first_offset,
            last_offset,
            record_count if seen is None else seen.record_count + record_count,
        )

    def end(self, marker: Marker) -> OpenOffsets | None:
        """The shown offsets that a marker ends; None if none were shown as open."""
        return self._open.pop(marker.producer_id, None)

    def lose(self, open_since: Mapping[int, int]) -> list[OpenOffsets]:
        """The transactions that ended unseen, because their markers were deleted before they were read.

        `open_since` has the first offset of each transaction that is open on the partition now, by producer id. A
        transaction that began after the shown offsets is another one.
        """
        lost = [
            seen for seen in self._open.values() if not 0 <= open_since.get(seen.producer_id, -1) <= seen.first_offset
        ]
        for seen in lost:
            del self._open[seen.producer_id]
        return lost
