"""Logs in memory, for tests, the simulator and brokers without a data folder.

`MemoryStorage` outlives the broker that uses it: opening a log again gives the same log, as a clean
restart would. `after_kill()` and `after_power_loss()` give what a process would find after each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import cast

from fencepost.machines.log import AbortedTxn, Log, LogConfig, StorageFailed, StoredBatch

HEADER_BYTES = 61
CONTROL = 0x20  # In the low byte of a batch's attributes, which is byte 22 of the batch.
SNAPSHOT_BATCHES = 4096


class MemoryLog:
    """One list of batches, and beside it what is needed to find one by offset, address or time."""

    __slots__ = (
        "_aborted",
        "_addresses",
        "_base_offsets",
        "_batches",
        "_highest_timestamps",
        "_last_offsets",
        "_snapshot",
        "_snapshot_batches",
        "_storage",
        "end_address",
        "end_offset",
        "start_address",
        "start_offset",
        "synced_offset",
    )

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.start_address = 0
        self.end_address = 0
        self.synced_offset = 0
        self._storage = storage
        self._batches: list[bytes] = []
        self._base_offsets = array("q")
        self._last_offsets = array("q")
        self._addresses = array("q")
        # The highest timestamp of the log up to and including each batch: sorted, so it can be bisected.
        self._highest_timestamps = array("q")
        self._aborted: list[AbortedTxn] = []
        self._snapshot: tuple[int, bytes] | None = None
        self._snapshot_batches = 0

    def append(self, batch: bytes, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        assert base_offset == self.end_offset, f"base offset {base_offset}, the log ends at {self.end_offset}"
        if self._storage is not None and self._storage.full:
            raise StorageFailed("no space left in memory storage (simulated)")
        address = self.end_address
        self._batches.append(bytes(batch))
        self._base_offsets.append(base_offset)
        self._last_offsets.append(last_offset)
        self._addresses.append(address)
        highest = self._highest_timestamps
        highest.append(max(max_timestamp, highest[-1]) if highest else max_timestamp)
        self.end_address = address + len(batch)
        self.end_offset = last_offset + 1
        return address

    def read(self, offset: int, max_bytes: int, end_address: int) -> bytes:
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

    def address_of(self, offset: int) -> int:
        index = bisect_left(self._last_offsets, offset)
        return self._addresses[index] if index < len(self._addresses) else self.end_address

    def scan(self, from_offset: int) -> Iterator[StoredBatch]:
        index = bisect_left(self._last_offsets, from_offset)
        while index < len(self._batches):
            batch = self._batches[index]
            head = batch if batch[22] & CONTROL else batch[:HEADER_BYTES]
            yield StoredBatch(self._addresses[index], len(batch), head)
            index += 1

    def offset_for_time(self, timestamp: int) -> bytes | None:
        # The first place where the highest timestamp so far reaches `timestamp` is a batch that has it.
        index = bisect_left(self._highest_timestamps, timestamp)
        return self._batches[index] if index < len(self._batches) else None

    def append_aborted(self, entry: AbortedTxn) -> None:
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
        self._snapshot = (self.end_offset, snapshot)
        self._snapshot_batches = len(self._batches)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        return self._snapshot

    def wants_snapshot(self) -> bool:
        return len(self._batches) - self._snapshot_batches >= SNAPSHOT_BATCHES

    def close(self) -> None:
        pass

    def copy_until(self, storage: MemoryStorage, end_offset: int) -> MemoryLog:
        """The log as a crash leaves it: batches below `end_offset`, and what the snapshot vouches for."""
        log = MemoryLog(storage)
        for index in range(bisect_left(self._base_offsets, end_offset)):
            batch = self._batches[index]
            timestamp = self._highest_timestamps[index]
            log.append(batch, self._base_offsets[index], self._last_offsets[index], timestamp)
        log.synced_offset = min(self.synced_offset, log.end_offset)
        if self._snapshot is not None and self._snapshot[0] <= log.end_offset:
            log._snapshot = self._snapshot
        vouched_for = log._snapshot[0] if log._snapshot is not None else 0
        log._aborted = [entry for entry in self._aborted if entry.last_offset < vouched_for]
        return log


def _last_offset(entry: AbortedTxn) -> int:
    return entry.last_offset


class MemoryStorage:
    """All logs by topic and partition, and one document.

    `full = True` makes every append and every `save_metadata` fail. With `later`, `sync` hands it its
    callback instead of calling at once, so that a simulator decides when the disk is done.
    """

    def __init__(self, later: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.full = False
        self.may_have_lost_appends = False
        self._later = later
        self._logs: dict[tuple[str, int], tuple[bytes, MemoryLog]] = {}
        self._metadata: bytes | None = None

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        known = self._logs.get((topic, partition))
        if known is not None and known[0] == topic_id:
            return known[1]
        log = MemoryLog(self)
        self._logs[topic, partition] = (topic_id, log)
        return log

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

    def after_kill(self) -> MemoryStorage:
        """What the next process finds after kill -9: every append, for the page cache survives."""
        return self._copy(lambda log: log.end_offset)

    def after_power_loss(self) -> MemoryStorage:
        """What the next process finds after a power cut: only what `sync` has called back for."""
        storage = self._copy(lambda log: log.synced_offset)
        storage.may_have_lost_appends = True
        return storage

    def _copy(self, end_of: Callable[[MemoryLog], int]) -> MemoryStorage:
        storage = MemoryStorage(self._later)
        storage._metadata = self._metadata
        for name, (topic_id, log) in self._logs.items():
            storage._logs[name] = (topic_id, log.copy_until(storage, end_of(log)))
        return storage

    @staticmethod
    def _mark_synced(ends: list[tuple[Log, int]]) -> None:
        for log, end_offset in ends:
            memory_log = cast(MemoryLog, log)
            memory_log.synced_offset = max(memory_log.synced_offset, end_offset)
