"""The aborted-transaction index of a log, over the `.txnindex` files of its segments.

Kafka: an entry is kept in the segment of its abort marker.
"""

from __future__ import annotations

from fencepost.machines.log.interface import AbortedTxn
from fencepost.server.storage.log_files import Segments
from fencepost.server.storage.segment import Segment


class AbortedIndex:
    """Every method may raise OSError."""

    __slots__ = ("_last_offset", "_segments")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._last_offset: int | None = None  # Of the last entry; None until the files were asked.

    def append(self, entry: AbortedTxn) -> Segment | None:
        """Add an entry and return its segment; None if the index has it already."""
        if entry.last_offset <= self._find_last_offset():
            return None
        segment = self._segments.of(entry.last_offset)
        segment.indexes.txns.pending.append((0, *entry))
        self._last_offset = entry.last_offset
        return segment

    def find(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Entries with last_offset >= from_offset and first_offset < upper_offset, in order."""
        found: list[AbortedTxn] = []
        if from_offset > self._find_last_offset():
            return found
        for index in range(self._segments.index_of(from_offset), len(self._segments)):
            txns = self._segments[index].indexes.txns
            if not len(txns):
                continue
            for _, producer_id, first_offset, last_offset, last_stable_offset in txns.starting(3, from_offset):
                if first_offset < upper_offset:
                    found.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset))
                if last_stable_offset >= upper_offset:
                    # Every transaction that ends after this one began at or after the LSO here.
                    return found
        return found

    def _find_last_offset(self) -> int:
        if self._last_offset is None:
            found = (segment.indexes.txns.last() for segment in reversed(self._segments))
            # Set only after all indexes were read: an index that cannot be read may have an entry.
            self._last_offset = next((last[3] for last in found if last is not None), -1)
        return self._last_offset
