"""A window of the log of one partition, as it was read, and where windows begin and end. Pure.

The records of large batches are kept between looks at a window, because a batch is decoded from its beginning.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.tail.outcomes import NOTHING_IS_STABLE, AbortedSince, LogBatch, MarkerIndex
from fencepost.protocol.batch import BatchHeader, Buffer
from fencepost.protocol.records import Record, iter_records


class ReadBatch(NamedTuple):
    batch: LogBatch
    content: Buffer

    @property
    def header(self) -> BatchHeader:
        return self.batch.header


class UnreadableOffsets(NamedTuple):
    """Offsets that cannot be read."""

    first_offset: int
    last_offset: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    where: NamedPartition
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    # The place that was asked for.
    at_offset: int
    # The offsets of the window. Batches are read whole, so they may begin before and end after it.
    first_offset: int
    end_offset: int
    batches: tuple[ReadBatch, ...] = ()
    damages: tuple[UnreadableOffsets, ...] = ()
    # The aborted index of the batches below `stable_end`.
    aborted: tuple[AbortedSince, ...] = ()
    stable_end: int = NOTHING_IS_STABLE
    # Markers behind the window, and whether they are all that there are.
    markers_ahead: tuple[LogBatch, ...] = ()
    has_all_markers: bool = True
    # The first offset of each open transaction, by producer id; None if the leader did not say.
    open_since: Mapping[int, int] | None = None
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    # Why the window is not where it was asked for.
    remark: str = ""
    problems: tuple[str, ...] = ()


def is_open(header: BatchHeader, open_since: Mapping[int, int]) -> bool:
    """Whether the transaction of a batch without a marker is open, by what the leader says of its producer."""
    return 0 <= open_since.get(header.producer_id, -1) <= header.base_offset


def undecided_producers(batches: Sequence[LogBatch], stable_end: int, open_since: Mapping[int, int] | None) -> set[int]:
    """The producers whose transactions have ended behind the window, or may have."""
    markers = MarkerIndex(batches)
    return {
        header.producer_id
        for header, _ in batches
        if header.is_transactional
        and not header.is_control
        and header.last_offset >= stable_end
        and markers.end_of(header) is None
        and (open_since is None or not is_open(header, open_since))
    }


def window_end(batches: Iterable[BatchHeader], first: int, count: int, at_most: int) -> int:
    """The end of the window that begins at `first` and has this many records, or as many as there are."""
    left = count
    for header in batches:
        there = records_from(header, first)
        if there >= left:
            # Of a batch that compaction made sparse, the window may have fewer records.
            end = max(header.base_offset, first) + left if there > left else header.last_offset + 1
            return min(end, at_most)
        left -= there
    return at_most


def window_start(batches: Sequence[BatchHeader], before: int, count: int, at_least: int) -> int:
    """The first offset of the window that ends at `before` and has this many records, or as many as there are."""
    left = count
    for header in reversed(batches):
        last = min(header.last_offset, before - 1)
        there = min(header.record_count, last - header.base_offset + 1)
        if there >= left:
            return max(last - left + 1 if there > left else header.base_offset, at_least)
        left -= there
    return at_least


def records_from(header: BatchHeader, first: int) -> int:
    """The records of a batch from `first` on; at most so many if compaction has removed some."""
    return min(header.record_count, header.last_offset - max(header.base_offset, first) + 1)


# A batch that is larger when it is uncompressed is not shown.
MOST_UNCOMPRESSED_BYTES = 64 << 20
# Smaller batches are decoded faster than they are kept.
LARGE_RECORDS = 1000
MOST_KEPT_BYTES_OF_A_BATCH = 200 << 10
MOST_KEPT_BATCHES = 20

Key = tuple[object, ...]


def records_of(window: LogWindow, read: ReadBatch) -> list[Record]:
    """The records of a batch that are in the window. Raises Corrupt."""
    return list(_records(window, read))


def _records(window: LogWindow, read: ReadBatch) -> Iterator[Record]:
    if read.header.record_count == 0:
        return iter(())  # Compaction keeps an empty batch, for the sequence numbers of its producer.
    records = iter_records(read.content, MOST_UNCOMPRESSED_BYTES)
    inside = takewhile(lambda record: record.offset < window.end_offset, records)
    return (record for record in inside if record.offset >= window.first_offset)


class DecodedBatches:
    """The records of the large batches that were asked for last. May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, list[Record]] = OrderedDict()

    def records_of(self, window: LogWindow, read: ReadBatch) -> list[Record]:
        """As the function `records_of`."""
        header = read.header
        if header.record_count < LARGE_RECORDS:
            return records_of(window, read)
        first, end = max(window.first_offset, header.base_offset), min(window.end_offset, header.last_offset + 1)
        # A topic that was deleted and created again has other batches at the same offsets: the checksum differs.
        key = (window.where, header.base_offset, header.crc, first, end)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        found = records_of(window, read)
        if sum(map(_size_bytes, found)) <= MOST_KEPT_BYTES_OF_A_BATCH:
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > MOST_KEPT_BATCHES:
                    self._kept.popitem(last=False)
        return found


def _size_bytes(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
