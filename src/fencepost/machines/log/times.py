"""Offsets for times: the first record of a log at or after a time, and the greatest timestamp of a log."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.machines.log.interface import Log
from fencepost.protocol.batch import Corrupt, decode_header
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
