"""The aborted-transaction index of a log, over the `.txnindex` files of its segments.

Kafka: an entry is kept in the segment of its abort marker.

Kafka's layout has no checksums. So a snapshot, which vouches for the index below it, comes with a file `.txncheck`: the
number of entries of each `.txnindex` below the snapshot, and their CRC-32C. A snapshot without it vouches for an empty
index.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fencepost.machines.log.interface import AbortedTxn
from fencepost.server.storage.checkpoints import decode_checkpoint, encode_checkpoint
from fencepost.server.storage.segment import Segment

if TYPE_CHECKING:
    from fencepost.server.storage.log_files import Segments

_LAST_OFFSET = 3  # The field of an entry.


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
            for entry in txns.starting(_LAST_OFFSET, from_offset):
                _, producer_id, first_offset, last_offset, last_stable_offset = entry
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
            self._last_offset = next((last[_LAST_OFFSET] for last in found if last is not None), -1)
        return self._last_offset


def encode_txn_check(segments: Sequence[Segment], until_offset: int) -> bytes:
    """Describe the stored entries below `until_offset`; empty if there are none."""
    lines = []
    for segment in segments:
        txns = segment.indexes.txns
        if entries := txns.stored_below(_LAST_OFFSET, until_offset):
            lines.append(f"{segment.base_offset} {entries} {txns.checksum(entries):08x}")
    return encode_checkpoint(lines) if lines else b""


def keep_checked(segments: Sequence[Segment], txn_check: bytes | None, until_offset: int) -> int | None:
    """Cut the index where `txn_check` ends; return the position of the first segment that differs from it, if any."""
    noted = _decode_txn_check(txn_check)
    bases = [segment.base_offset for segment in segments]
    # Segments that are not there any more: they were cleaned, and a crash came before the new note.
    gone = [bisect_right(bases, base) - 1 for base in noted if base > bases[0] and base not in bases]
    for index, segment in enumerate(segments):
        txns = segment.indexes.txns
        entries, crc = noted.get(segment.base_offset, (0, 0))
        following = txns.entry(entries)
        is_longer = following is not None and following[_LAST_OFFSET] < until_offset
        if is_longer or txns.stored < entries or txns.checksum(entries) != crc:
            return min([index, *gone])
        txns.truncate(entries)
    return min(gone, default=None)


def _decode_txn_check(content: bytes | None) -> Mapping[int, tuple[int, int]]:
    """By the base offset of the segment: entries and checksum. A damaged file fits no index but an empty one."""
    try:
        lines = decode_checkpoint(content) or []
        return {int(base): (int(entries), int(crc, 16)) for base, entries, crc in lines}
    except ValueError:
        return {}
