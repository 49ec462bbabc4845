"""Reads a window of the log of one partition: so many records from an offset on, before an offset, or around one.

Every window costs a bounded number of bytes, wherever it is in the log and however long the log is. Nothing is kept.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    describe_producers,
    list_offsets,
)
from fencepost.client.client import KafkaClient
from fencepost.client.failures import DeadlinePassed
from fencepost.client.fetching import TopicReader
from fencepost.diagnose.collect.look import ends_of
from fencepost.diagnose.collect.reading import (
    DamagedBatch,
    Start,
    StartKind,
    TransactionalIds,
    sound_batches,
    start_offset,
)
from fencepost.diagnose.strip.window import (
    LogWindow,
    ReadBatch,
    UnreadableOffsets,
    records_from,
    undecided_producers,
    window_end,
    window_start,
)
from fencepost.diagnose.tail.outcomes import NOTHING_IS_STABLE, AbortedSince, LogBatch
from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader, Corrupt

MOST_RECORDS = 500
WINDOW_BYTES = 1 << 20
# For the markers of transactions that are open at the end of the window, and end behind it.
AHEAD_BYTES = 4 << 20
# A page asks again in a moment.
PATIENCE_S = 2.0
# How much further back the next attempt looks, if compaction has left no record in the last one.
FURTHER = 8


class Side(Enum):
    """Where a window is, seen from its offset."""

    FROM = "from"
    BEFORE = "before"
    AROUND = "around"


class _Read(NamedTuple):
    batches: list[ReadBatch]
    damages: list[UnreadableOffsets]
    aborted: set[AbortedSince]
    stable_end: int
    next_offset: int  # All offsets before it are read.

    @property
    def has_records(self) -> bool:
        return bool(self.damages) or any(read.header.record_count for read in self.batches)


def collect_strip(client: KafkaClient, where: NamedPartition, start: Start, side: Side, count: int) -> LogWindow:
    """A window of `count` records. Raises ClientError."""
    return _Window(client, where, min(max(count, 1), MOST_RECORDS)).collect(start, side)


class _Window:
    def __init__(self, client: KafkaClient, where: NamedPartition, count: int) -> None:
        self._client = client
        self._where = where
        self._count = count
        self._reader = TopicReader(client, where.topic, PATIENCE_S)
        client.leader(*where)  # Raises BrokerError if there is no such partition, or no leader.

    def collect(self, start: Start, side: Side) -> LogWindow:
        where = self._where
        first = self._ask_offset(EARLIEST)
        ends = ends_of(self._client, [where])
        if ends.problems:
            raise DeadlinePassed(ends.problems[0])
        end = ends.found[where].high_watermark
        by_time = self._ask_offset(start.number) if start.kind is StartKind.TIME else -1
        at, remark = start_offset(start, where, first, end, by_time)
        if start.kind is StartKind.TIME and by_time < 0:
            remark = f"{where} has no record that late"
        read, begin = self._read_side(side, at, first, end)
        headers = [found.header for found in read.batches]
        stop = read.next_offset
        if side is Side.BEFORE:
            begin = window_start(headers, stop, self._count, begin)
        else:
            stop = window_end(headers, begin, self._count, stop)
        batches = [found for found in read.batches if _overlaps(found.header, begin, stop)]
        # The order matters. A transaction that ends between the questions is not open any more for the leader, and its
        # marker is found.
        producers = describe_producers(self._client, [where])
        open_since = (
            {p.producer_id: p.txn_start_offset for p in producers.found[where] if p.txn_start_offset >= 0}
            if where in producers.found
            else None
        )
        undecided = undecided_producers([b.batch for b in batches], read.stable_end, open_since)
        ahead, has_all = self._markers_ahead(stop, undecided)
        names = TransactionalIds(self._client)
        names.learn({b.header.producer_id for b in batches if b.header.is_transactional} | set(open_since or ()))
        stable = max(ends.found[where].last_stable_offset, read.stable_end)
        return LogWindow(
            where=where,
            log_start_offset=first,
            last_stable_offset=stable,
            high_watermark=max(end, stable),
            at_offset=at,
            first_offset=begin,
            end_offset=stop,
            batches=tuple(batches),
            damages=tuple(read.damages),
            aborted=tuple(sorted(read.aborted)),
            stable_end=read.stable_end,
            markers_ahead=tuple(ahead),
            has_all_markers=has_all,
            open_since=open_since,
            transactional_ids=names.known,
            remark=remark,
            problems=(*producers.problems, *names.problems),
        )

    def _ask_offset(self, timestamp: int) -> int:
        answers = list_offsets(self._client, [self._where], timestamp=timestamp)
        if answers.problems:
            raise DeadlinePassed(answers.problems[0])
        return answers.found[self._where]

    def _read_side(self, side: Side, at: int, first: int, end: int) -> tuple[_Read, int]:
        """What was read, and where the window begins."""
        if side is Side.FROM:
            return self._read(at, end, self._count), at
        if side is Side.BEFORE:
            return self._read_back(at, first)
        begin = max(first, at - self._count // 2)
        read = self._read(begin, end, self._count)
        # Large records fill the window before it comes to the offset in its middle.
        return (read, begin) if read.next_offset > min(at, end - 1) else (self._read(at, end, self._count), at)

    def _read_back(self, before: int, first: int) -> tuple[_Read, int]:
        step = self._count
        has_grown = False
        while True:
            begin = max(first, before - step)
            read = self._read(begin, before, step)
            if read.next_offset < before and not has_grown and step > 1:
                # There are more bytes than a window may have: fewer offsets.
                step = max((read.next_offset - begin) * 3 // 4, 1)
            elif not read.has_records and begin > first:
                step *= FURTHER
                has_grown = True
            else:
                return read, begin

    def _read(self, position: int, end: int, count: int) -> _Read:
        """Read so many records, or as many bytes as a window may have; the aborted index comes with what is stable."""
        batches: list[ReadBatch] = []
        damages: list[UnreadableOffsets] = []
        aborted: set[AbortedSince] = set()
        stable_end = NOTHING_IS_STABLE
        isolation_level = READ_COMMITTED
        left_bytes = WINDOW_BYTES
        first, left = position, count
        while position < end and left > 0 and left_bytes > 0:
            fetched = self._reader.fetch(self._where, position, isolation_level, partition_bytes=left_bytes)
            if fetched.error_code == errors.OFFSET_OUT_OF_RANGE:
                position = min(self._reader.nearest(self._where, position), end)
                continue
            if isolation_level == READ_COMMITTED:
                stable_end = max(stable_end, min(fetched.last_stable_offset, end))
                aborted |= {AbortedSince(*txn) for txn in fetched.aborted}
            try:
                found = sound_batches(self._where, fetched.records, position, end)
            except DamagedBatch as e:
                last = max(e.next_offset - 1, position)
                damages.append(UnreadableOffsets(position, min(last, end - 1), str(e)))
                position = last + 1
                continue
            except Corrupt as e:
                problem = f"the record batch at offset {position} cannot be read: {e}; is it older than Kafka 0.11?"
                damages.append(UnreadableOffsets(position, end - 1, problem))
                position = end
                break
            if found:
                batches += [ReadBatch(*read) for read in found]
                left -= sum(records_from(batch.header, first) for batch, _ in found)
                left_bytes -= sum(len(content) for _, content in found)
                position = found[-1][0].header.last_offset + 1
            elif isolation_level == READ_COMMITTED:
                # Nothing is left below the last stable offset.
                position = max(position, stable_end)
                isolation_level = READ_UNCOMMITTED
            else:
                position = end  # Compaction has removed the rest.
        return _Read(batches, damages, aborted, stable_end, min(position, end))

    def _markers_ahead(self, position: int, undecided: set[int]) -> tuple[list[LogBatch], bool]:
        """The next markers of these producers, and whether the scan found them all, or came to the end of the log."""
        markers: list[LogBatch] = []
        missing = set(undecided)
        left_bytes = AHEAD_BYTES
        while missing and left_bytes > 0:
            fetched = self._reader.fetch(self._where, position, READ_UNCOMMITTED, partition_bytes=left_bytes)
            if fetched.error_code == errors.OFFSET_OUT_OF_RANGE:
                return markers, False
            try:
                found = sound_batches(self._where, fetched.records, position)
            except (DamagedBatch, Corrupt):
                return markers, False
            if not found:
                return markers, True
            for batch, content in found:
                left_bytes -= len(content)
                position = batch.header.last_offset + 1
                if batch.marker is not None and batch.marker.producer_id in missing:
                    missing.discard(batch.marker.producer_id)
                    markers.append(batch)
        return markers, not missing


def _overlaps(header: BatchHeader, first: int, end: int) -> bool:
    return header.base_offset < end and header.last_offset >= first
