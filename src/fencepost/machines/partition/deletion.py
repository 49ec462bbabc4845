"""The oldest records of a partition are deleted: by DeleteRecords, or by retention."""

from __future__ import annotations

from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.log.retention import Retention, first_kept_offset
from fencepost.machines.partition.partition import Partition
from fencepost.protocol import errors

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
