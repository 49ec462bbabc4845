"""The oldest records of a partition are deleted: by DeleteRecords, or by retention.

Retention follows Kafka's UnifiedLog.deleteOldSegments: whole segments are deleted, the oldest first, if their greatest
timestamp is older than `retention.ms` or while more than `retention.bytes` would remain without them. The active
segment is deleted too when it is old enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.machines.log.interface import LogSegment, StorageFailed
from fencepost.machines.partition.partition import Partition
from fencepost.protocol import errors


class Retention(NamedTuple):
    """-1 means no limit."""

    retention_ms: int = -1
    retention_bytes: int = -1


def first_kept_offset(
    segments: Sequence[LogSegment], end_offset: int, limit_offset: int, retention: Retention, now_ms: int
) -> int:
    """Where a log of these segments should begin: with one of them, or at its end; at most at `limit_offset`."""
    excess = sum(segment.size for segment in segments) - retention.retention_bytes
    kept = segments[0].base_offset
    for segment, following in zip(segments, [*(s.base_offset for s in segments[1:]), end_offset], strict=True):
        excess -= segment.size
        is_too_much = retention.retention_bytes >= 0 and excess >= 0
        if following > limit_offset or segment.size == 0 or not (is_too_much or _is_old(segment, retention, now_ms)):
            break
        kept = following
    return kept


def _is_old(segment: LogSegment, retention: Retention, now_ms: int) -> bool:
    return retention.retention_ms >= 0 and now_ms - segment.largest_timestamp() > retention.retention_ms


DELETE_ALL = -1


def delete_records(partition: Partition, offset: int) -> tuple[int, int]:
    """Let the log start at `offset`, or at its end (-1); return an error code and the log's new start."""
    log = partition.log
    if offset == DELETE_ALL:
        offset = log.end_offset
    if not 0 <= offset <= log.end_offset:
        return errors.OFFSET_OUT_OF_RANGE, -1
    if offset > log.start_offset:
        partition.save_snapshot()
        try:
            address = log.address_of(offset)  # First, because the log's start cannot be moved back.
            log.advance_start(offset)
        except StorageFailed:
            return errors.KAFKA_STORAGE_ERROR, -1
        partition.move_open_txns(address)
        partition.advance()
    return errors.NONE, log.start_offset


def apply_retention(partition: Partition, retention: Retention, now_ms: int) -> bool:
    """Delete the segments that are too old or too many; return whether there were any. Raises StorageFailed."""
    # Differs: Kafka deletes up to the high watermark, even the data of an open transaction. Fencepost stops at the last
    # stable offset, so that the data of a transaction is there when it commits.
    log = partition.log
    segments = log.segments()
    if not segments:
        return False
    start = first_kept_offset(segments, log.end_offset, partition.last_stable_offset, retention, now_ms)
    start = max(start, log.start_offset)
    if start == log.end_offset:
        log.roll()  # The name of the new segment keeps the offset.
    segments = log.segments()
    if len(segments) < 2 or segments[1].base_offset > start:
        return False
    # A snapshot must have the producers of a segment before the segment is deleted.
    partition.save_snapshot()
    log.advance_start(start)
    return True
