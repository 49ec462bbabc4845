"""The three indexes beside a segment's `.log`: offsets, times and aborted transactions.

Kafka: an entry of the offset index is the *last* offset of a batch and the position of that same batch; there is one
after every `index.interval.bytes`. An entry of the time index is the greatest timestamp of all batches up to an offset.
"""

from __future__ import annotations

from fencepost.server.storage.heads import Placed
from fencepost.server.storage.index_file import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, IndexFile
from fencepost.server.storage.open_files import OpenFiles

NO_TIMESTAMP = -1
UNKNOWN_TIMESTAMP = -2  # The time index was not read yet.
MAX_PENDING_ENTRIES = 64  # With 4 KiB between entries, a killed process leaves about 256 KiB without index.

SUFFIXES = ("index", "timeindex", "txnindex")


class SegmentIndexes:
    """`max_timestamp` is that of the segment; `unindexed_bytes` were appended since the last entry."""

    __slots__ = (
        "_base_offset",
        "_max_timestamp_offset",
        "_open_files",
        "max_timestamp",
        "offsets",
        "times",
        "txns",
        "unindexed_bytes",
    )

    def __init__(self, open_files: OpenFiles, stem: str, base_offset: int, suffix: str) -> None:
        self.offsets = IndexFile(open_files, stem + ".index" + suffix, OFFSET_ENTRY)
        self.times = IndexFile(open_files, stem + ".timeindex" + suffix, TIME_ENTRY)
        self.txns = IndexFile(open_files, stem + ".txnindex" + suffix, TXN_ENTRY)
        self.max_timestamp = UNKNOWN_TIMESTAMP
        self.unindexed_bytes = 0
        self._max_timestamp_offset = base_offset
        self._base_offset = base_offset
        self._open_files = open_files

    def files(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        return self.offsets, self.times, self.txns

    def create_later(self) -> None:
        """The segment is new. The first flush creates the files."""
        for index in self.files():
            index.create_later()
        self.max_timestamp = NO_TIMESTAMP

    def load_max_timestamp(self) -> None:
        if self.max_timestamp == UNKNOWN_TIMESTAMP:
            last = self.times.last()
            self.max_timestamp, relative_offset = last if last is not None else (NO_TIMESTAMP, 0)
            self._max_timestamp_offset = self._base_offset + relative_offset

    def see_timestamp(self, max_timestamp: int, last_offset: int) -> None:
        """Called for a batch whose timestamp is greater than all before it."""
        self.max_timestamp = max_timestamp
        self._max_timestamp_offset = last_offset

    def add(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch at `position`, after `see_timestamp` for it."""
        self.offsets.pending.append((last_offset - self._base_offset, position))
        self.add_time()
        self.unindexed_bytes = 0

    def add_time(self) -> None:
        """Add an entry for the greatest timestamp, unless the last entry has it."""
        last = self.times.last()
        if self.max_timestamp > (last[0] if last is not None else NO_TIMESTAMP):
            self.times.pending.append((self.max_timestamp, self._max_timestamp_offset - self._base_offset))

    def note(self, placed: Placed, index_interval_bytes: int) -> None:
        """Index one batch as an append would."""
        position, size, _, last_offset, max_timestamp, *_ = placed
        if max_timestamp > self.max_timestamp:
            self.see_timestamp(max_timestamp, last_offset)
        if self.unindexed_bytes > index_interval_bytes:
            self.add(last_offset, position)
        self.unindexed_bytes += size

    def flush(self) -> None:
        """May raise OSError, and may be called again: an index is at worst too short, never wrong."""
        if not any(index.pending or index.missing for index in self.files()):
            return
        # The time index first: recovery removes its entries that are ahead of the offset index.
        self.times.flush()
        self._open_files.at("index.write")
        self.offsets.flush()
        self.txns.flush()

    def seal(self) -> None:
        """Complete the indexes of a segment that takes no more batches."""
        self.add_time()
        self.flush()

    def forget(self) -> None:
        """Begin new offset and time indexes; they are not on disk until the next flush."""
        for index in (self.times, self.offsets):
            index.remove()
        self.max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self._base_offset
        self.unindexed_bytes = 0
