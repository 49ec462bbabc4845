"""The storage in memory that the next process finds after a crash. It shares nothing with the storage of before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from fencepost.machines.log.memory import MemoryLog, MemoryStorage


def after_kill(storage: MemoryStorage) -> MemoryStorage:
    """After kill -9: every append, because the page cache survives."""
    found = _copy(storage, lambda log: log.end_offset)
    found.may_have_lost_appends = storage.may_have_lost_appends
    return found


def after_power_loss(storage: MemoryStorage) -> MemoryStorage:
    """After a power loss: only appends for which `sync` has called back."""
    found = _copy(storage, lambda log: log.synced_offset)
    found.may_have_lost_appends = True
    return found


def _copy(storage: MemoryStorage, end_of: Callable[[MemoryLog], int]) -> MemoryStorage:
    found = MemoryStorage(storage._later)
    found._metadata = storage._metadata
    for name, (topic_id, log) in storage._logs.items():
        found._logs[name] = (topic_id, copy_log(log, found, end_of(log)))
    return found


def copy_log(log: MemoryLog, storage: MemoryStorage, end_offset: int) -> MemoryLog:
    """The log as a crash leaves it: batches below `end_offset`, and aborted transactions below the snapshot."""
    copy = MemoryLog(storage, log._config)
    kept = bisect_left(log._base_offsets, end_offset)
    copy._batches = log._batches[:kept]
    for name in ("_base_offsets", "_last_offsets", "_addresses", "_timestamps", "_highest_timestamps"):
        setattr(copy, name, getattr(log, name)[:kept])
    copy.start_offset = min(log.start_offset, end_offset)
    copy.end_offset = copy._last_offsets[-1] + 1 if kept else end_offset
    copy.start_address = log.start_address
    copy.end_address = log._address_at(kept)
    copy.clean_offset = min(log.clean_offset, copy.end_offset)
    copy._segment_bases = [base for base in log._segment_bases if base <= copy.end_offset] or [copy.end_offset]
    copy.synced_offset = min(log.synced_offset, copy.end_offset)
    if log._snapshot is not None and log._snapshot[0] <= copy.end_offset:
        copy._snapshot = log._snapshot
    vouched_for = copy._snapshot[0] if copy._snapshot is not None else 0
    copy._aborted = [entry for entry in log._aborted if entry.last_offset < vouched_for]
    return copy
