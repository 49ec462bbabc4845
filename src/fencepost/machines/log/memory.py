"""Logs in memory, for tests and for brokers without a data folder.

`MemoryStorage` outlives the broker that uses it: opening a log again returns the same log, as after a clean restart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import cast

from fencepost.machines.log.interface import AbortedTxn, Log, LogConfig, LogFenced, Rewrite, StorageFailed, StoredBatch
from fencepost.protocol.batch import ATTRIBUTES_AT, CONTROL, HEADER_BYTES, LEADER_EPOCH, Buffer
from fencepost.protocol.topic_partition import TopicPartition

SNAPSHOT_BATCHES = 4096
FENCED = "another leader has taken over the log"


class MemorySegment:
    """A run of a MemoryLog's batches that would be one segment on disk."""

    __slots__ = ("_timestamps", "base_offset", "size")

    def __init__(self, base_offset: int, size: int, timestamps: array[int]) -> None:
        self.base_offset = base_offset
        self.size = size
        self._timestamps = timestamps

    def largest_timestamp(self) -> int:
        return max(self._timestamps, default=-1)

    def first_timestamp(self) -> int:
        return self._timestamps[0] if self._timestamps else -1


class MemoryLog:
    """One list of batches, and arrays to find a batch by offset, address or time."""

    __slots__ = (
        "_aborted",
        "_addresses",
        "_base_offsets",
        "_batches",
        "_config",
        "_highest_timestamps",
        "_is_fenced",
        "_last_offsets",
        "_segment_bases",
        "_snapshot",
        "_snapshot_batches",
        "_storage",
        "_timestamps",
        "clean_offset",
        "end_address",
        "end_offset",
        "start_address",
        "start_offset",
        "synced_offset",
    )

    def __init__(self, storage: MemoryStorage | None = None, config: LogConfig = LogConfig()) -> None:  # noqa: B008
        self.start_offset = 0
        self.end_offset = 0
        self.start_address = 0
        self.end_address = 0
        self.synced_offset = 0
        self.clean_offset = 0
        self._storage = storage
        self._config = config
        self._is_fenced = False
        self._batches: list[bytes] = []
        self._base_offsets = array("q")
        self._last_offsets = array("q")
        self._addresses = array("q")
        self._timestamps = array("q")
        # The highest timestamp of the log up to and including each batch: sorted, so it can be bisected.
        self._highest_timestamps = array("q")
        # Where segments begin. An append does not update it: `_find_segments` adds those that began since.
        self._segment_bases = [0]
        self._aborted: list[AbortedTxn] = []
        self._snapshot: tuple[int, bytes] | None = None
        self._snapshot_batches = 0

    def configure(self, config: LogConfig) -> None:
        self._config = config

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        assert base_offset == self.end_offset, f"base offset {base_offset}, the log ends at {self.end_offset}"
        self._check_there()
        if self._storage is not None and self._storage.full:
            raise StorageFailed("no space left in memory storage (simulated)")
        address = self.end_address
        self.end_address, self.end_offset = address + len(batch), last_offset + 1
        self._batches.append(bytes(batch))
        self._base_offsets.append(base_offset)
        self._last_offsets.append(last_offset)
        self._addresses.append(address)
        self._timestamps.append(max_timestamp)
        highest = self._highest_timestamps
        highest.append(max(max_timestamp, highest[-1]) if highest else max_timestamp)
        return address

    def _check_there(self) -> None:
        if self._is_fenced:
            raise LogFenced(FENCED)

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
        self._check_there()
        addresses = self._addresses
        first = bisect_left(self._last_offsets, offset)
        if first == len(addresses):
            return b""
        limit = min(end_address, self.end_address)
        if addresses[first] >= limit:
            return b""
        limit = min(limit, addresses[first] + max_bytes)
        # The batch that crosses the limit is left out, unless it is the first.
        after = len(addresses) if limit == self.end_address else bisect_right(addresses, limit) - 1
        if after <= first + 1:
            return self._batches[first]
        return b"".join(self._batches[first:after])

    read_in_place = read

    def address_of(self, offset: int) -> int:
        index = bisect_left(self._last_offsets, offset)
        return self._addresses[index] if index < len(self._addresses) else self.end_address

    def scan(self, from_offset: int) -> Iterator[StoredBatch]:
        index = bisect_left(self._last_offsets, from_offset)
        while index < len(self._batches):
            batch = self._batches[index]
            head = batch if batch[ATTRIBUTES_AT] & CONTROL else batch[:HEADER_BYTES]
            yield StoredBatch(self._addresses[index], len(batch), head)
            index += 1

    def leader_epochs(self) -> list[tuple[int, int]]:
        epochs: list[tuple[int, int]] = []
        for batch, base_offset in zip(self._batches, self._base_offsets, strict=True):
            epoch = int.from_bytes(batch[LEADER_EPOCH], "big", signed=True)
            if not epochs or epoch > epochs[-1][0]:
                epochs.append((epoch, base_offset))
        return epochs

    def first_batch_not_before(self, timestamp: int) -> bytes | None:
        # The batch at which the highest timestamp so far reaches `timestamp` is the first that has it.
        index = bisect_left(self._highest_timestamps, timestamp)
        return self._batches[index] if index < len(self._batches) else None

    def append_aborted(self, entry: AbortedTxn) -> None:
        self._check_there()
        if not self._aborted or entry.last_offset > self._aborted[-1].last_offset:
            self._aborted.append(entry)

    def aborted(self, from_offset: int, upper_offset: int) -> list[AbortedTxn]:
        entries = self._aborted
        if not entries or from_offset > entries[-1].last_offset:
            return []
        found = []
        for index in range(bisect_left(entries, from_offset, key=_last_offset), len(entries)):
            entry = entries[index]
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                break
        return found

    def save_snapshot(self, snapshot: bytes) -> None:
        if self._is_fenced:
            return
        self._snapshot = (self.end_offset, snapshot)
        self._snapshot_batches = len(self._batches)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        return self._snapshot

    def wants_snapshot(self) -> bool:
        return len(self._batches) - self._snapshot_batches >= SNAPSHOT_BATCHES

    # Segments.

    def segments(self) -> list[MemorySegment]:
        self._find_segments()
        bases = self._segment_bases
        ends = [bisect_left(self._base_offsets, base) for base in bases[1:]] + [len(self._batches)]
        segments = []
        first = 0
        for base, after in zip(bases, ends, strict=True):
            size = self._address_at(after) - self._address_at(first)
            segments.append(MemorySegment(base, size, self._timestamps[first:after]))
            first = after
        return segments

    def _find_segments(self) -> None:
        """Close the active segment where it became too large or too old, as an append on disk would have done."""
        bases = self._segment_bases
        while True:
            first = bisect_left(self._base_offsets, bases[-1])
            if first == len(self._batches):
                return
            # The first batch that exceeds `segment.bytes` or `segment.ms`.
            limit = self._addresses[first] + self._config.segment_bytes
            too_large = bisect_right(self._addresses, limit) - 1 if limit < self.end_address else len(self._batches)
            after = max(first + 1, min(too_large, self._first_too_old(first)))
            if after >= len(self._batches):
                return
            bases.append(self._base_offsets[after])

    def _first_too_old(self, first: int) -> int:
        deadline_ms = self._timestamps[first] + self._config.segment_ms
        highest = self._highest_timestamps
        if self._timestamps[first] < 0 or highest[first] > deadline_ms:
            return len(highest)  # Without timestamps, or after one that was far in the future, only size counts.
        return bisect_right(highest, deadline_ms, first)

    def _address_at(self, index: int) -> int:
        return self._addresses[index] if index < len(self._addresses) else self.end_address

    def roll(self) -> None:
        self._check_there()
        self._find_segments()
        if self._segment_bases[-1] != self.end_offset:
            self._segment_bases.append(self.end_offset)

    def advance_start(self, offset: int) -> None:
        assert offset <= self.end_offset, f"the log ends at {self.end_offset}, it cannot begin at {offset}"
        if offset <= self.start_offset or self._is_fenced:
            return
        self._find_segments()
        self.start_offset = offset
        gone = bisect_left(self._last_offsets, offset)
        self._replace(0, gone, [], [], [], [])
        self._aborted = [entry for entry in self._aborted if entry.last_offset >= offset]
        first = self._base_offsets[0] if self._batches else self.end_offset
        self._segment_bases = [first, *(base for base in self._segment_bases if base > first)]

    def rewrite(self, base_offset: int, end_offset: int) -> Rewrite:
        self._check_there()
        return MemoryRewrite(self, base_offset, end_offset)

    def note_clean(self, offset: int) -> None:
        self.clean_offset = offset

    def replace_segments(self, base_offset: int, end_offset: int, rewritten: MemoryRewrite) -> bool:
        bases = self._segment_bases
        if self._is_fenced or base_offset not in bases or end_offset not in bases:
            return False  # Deleted meanwhile.
        first, after = bisect_left(self._base_offsets, base_offset), bisect_left(self._base_offsets, end_offset)
        self._replace(
            first, after, rewritten.batches, rewritten.base_offsets, rewritten.last_offsets, rewritten.timestamps
        )
        self._segment_bases = [base for base in bases if base <= base_offset or base >= end_offset]
        before = [entry for entry in self._aborted if entry.last_offset < base_offset]
        self._aborted = [
            *before, *rewritten.aborted, *(entry for entry in self._aborted if entry.last_offset >= end_offset)
        ]  # fmt: skip
        return True

    def _replace(
        self,
        first: int,
        after: int,
        batches: list[bytes],
        base_offsets: list[int],
        last_offsets: list[int],
        timestamps: list[int],
    ) -> None:
        """Replace the batches from `first` to `after`; the batches after them keep their addresses."""
        self._batches[first:after] = batches
        self._base_offsets[first:after] = array("q", base_offsets)
        self._last_offsets[first:after] = array("q", last_offsets)
        self._timestamps[first:after] = array("q", timestamps)
        self._highest_timestamps = array("q", accumulate(self._timestamps, max))
        unmoved = self._addresses[after:]
        moved = first + len(batches)
        address = (unmoved[0] if unmoved else self.end_address) - sum(map(len, self._batches[:moved]))
        self.start_address = address
        self._addresses = array("q", accumulate(map(len, self._batches[:moved]), initial=address))[:-1] + unmoved
        self._snapshot_batches = max(0, self._snapshot_batches - (after - first) + len(batches))

    def close(self) -> None:
        pass


def _hand_over(old: MemoryLog) -> MemoryLog:
    """A new handle on the same batches; the old one is fenced."""
    new = MemoryLog()
    for name in MemoryLog.__slots__:
        setattr(new, name, getattr(old, name))
    old._is_fenced = True
    return new


class MemoryRewrite:
    """See `interface.Rewrite`."""

    def __init__(self, log: MemoryLog, base_offset: int, end_offset: int) -> None:
        self._log = log
        self._base_offset = base_offset
        self._end_offset = end_offset
        self.batches: list[bytes] = []
        self.base_offsets: list[int] = []
        self.last_offsets: list[int] = []
        self.timestamps: list[int] = []
        self.aborted: list[AbortedTxn] = []

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        self.batches.append(bytes(batch))
        self.base_offsets.append(int.from_bytes(batch[:8], "big"))
        self.last_offsets.append(last_offset)
        self.timestamps.append(max_timestamp)

    def append_aborted(self, entry: AbortedTxn) -> None:
        self.aborted.append(entry)

    def finish(self, then: Callable[[bool], None]) -> None:
        then(self._log.replace_segments(self._base_offset, self._end_offset, self))

    def abandon(self) -> None:
        self.batches.clear()


def _last_offset(entry: AbortedTxn) -> int:
    return entry.last_offset


class MemoryStorage:
    """All logs by topic and partition, and one document.

    `full = True` makes every append and every `save_metadata` fail. With `later`, `sync` passes its callback to it
    instead of calling it at once, so that a test decides when the disk is done.
    """

    def __init__(self, later: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.full = False
        self.may_have_lost_appends = False
        self._later = later
        self._logs: dict[TopicPartition, tuple[bytes, MemoryLog]] = {}
        self._metadata: bytes | None = None

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        known = self._logs.get((topic, partition))
        if known is not None and known[0] == topic_id:
            known[1].configure(config)
            return known[1]
        log = MemoryLog(self, config)
        self._logs[topic, partition] = (topic_id, log)
        return log

    def take_over(self, topic: str, partition: int) -> Log:
        topic_id, log = self._logs[topic, partition]
        taken = _hand_over(log)
        self._logs[topic, partition] = (topic_id, taken)
        return taken

    def open_logs(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        return [self._logs[where][1] for where in partitions if where in self._logs]

    def delete_log(self, topic: str, partition: int) -> None:
        self._logs.pop((topic, partition), None)

    def load_metadata(self) -> bytes | None:
        return self._metadata

    def save_metadata(self, document: bytes) -> None:
        if self.full:
            raise StorageFailed("no space left in memory storage (simulated)")
        self._metadata = bytes(document)

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        if self._later is None:
            self._mark_synced([(log, log.end_offset) for log in logs])
            then()
            return
        ends = [(log, log.end_offset) for log in logs]

        def done() -> None:
            self._mark_synced(ends)
            then()

        self._later(done)

    def close(self) -> None:
        pass

    def note_recovered(self) -> None:
        self.may_have_lost_appends = False

    @staticmethod
    def _mark_synced(ends: list[tuple[Log, int]]) -> None:
        for log, end_offset in ends:
            memory_log = cast(MemoryLog, log)
            memory_log.synced_offset = max(memory_log.synced_offset, end_offset)
