"""ListOffsets for one partition: its earliest and latest offset, and offsets by time."""

from __future__ import annotations

from fencepost.machines.log.times import NOT_FOUND, FoundOffset, first_not_before, max_timestamp
from fencepost.machines.partition.partition import Partition
from fencepost.protocol.batch import NO_TIMESTAMP

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
