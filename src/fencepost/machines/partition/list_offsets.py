"""ListOffsets for one partition: its earliest and latest offset, and offsets by time."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.log.interface import Log
from fencepost.machines.partition.partition import Partition
from fencepost.protocol.batch import NO_TIMESTAMP, Corrupt, decode_header
from fencepost.protocol.records import iter_records

# A larger batch is not searched for a time: its first offset is the answer, which may be a little early.
MAX_SEARCHED_BYTES = 32 << 20
MAX_SEARCHED_RECORDS = 1 << 17


class FoundOffset(NamedTuple):
    """The answer to a ListOffsets request for one partition."""

    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = FoundOffset(-1, -1, -1)


def first_not_before(log: Log, timestamp: int) -> FoundOffset:
    batch = log.first_batch_not_before(timestamp)
    if batch is None:
        return NOT_FOUND
    header = decode_header(batch)
    try:
        for record in iter_records(batch, MAX_SEARCHED_BYTES) if header.record_count <= MAX_SEARCHED_RECORDS else ():
            if record.timestamp >= timestamp and record.offset >= log.start_offset:
                return FoundOffset(record.offset, record.timestamp, header.leader_epoch)
    except Corrupt:
        # A client may store records that cannot be decoded. The batch is still the right one.
        pass
    return FoundOffset(max(header.base_offset, log.start_offset), header.max_timestamp, header.leader_epoch)


def max_timestamp(log: Log) -> int | None:
    """The greatest timestamp in the log, by search: the log finds the first batch that is at least as late."""
    first = log.first_batch_not_before(0)
    if first is None:
        return None
    known = decode_header(first).max_timestamp
    step = 1
    while step:
        batch = log.first_batch_not_before(known + step)
        if batch is None:
            step //= 2
        else:
            known = decode_header(batch).max_timestamp
            step *= 2
    return known


LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4


def offset_for(partition: Partition, timestamp: int, read_committed: bool = False) -> FoundOffset:
    """The latest (-1) or earliest (-2) offset, the record with the greatest time (-3), or the first from a time on."""
    log, epochs = partition.log, partition.leader_epochs
    end = partition.last_stable_offset if read_committed else log.end_offset
    if timestamp == LATEST_TIMESTAMP:
        return FoundOffset(end, NO_TIMESTAMP, epochs.current)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return FoundOffset(log.start_offset, NO_TIMESTAMP, epochs.at(log.start_offset))
    if timestamp == MAX_TIMESTAMP:
        newest = max_timestamp(log)
        found = NOT_FOUND if newest is None else first_not_before(log, newest)
    elif timestamp >= 0:
        found = first_not_before(log, timestamp)
    else:
        return NOT_FOUND
    return found if found.offset < end else NOT_FOUND
