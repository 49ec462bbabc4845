"""Keeps the records of large batches between looks at a window, because a batch is decoded from its beginning."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from fencepost.diagnose.strip.window import LogWindow, ReadBatch
from fencepost.protocol.records import Record, iter_records

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
