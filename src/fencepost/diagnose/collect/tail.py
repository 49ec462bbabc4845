"""Reads a topic for `fencepost tail`: first the stored records, then, with `--follow`, new ones.

Records below the last stable offset come with the aborted index. The rest, up to the high watermark, is read twice:
once for the markers, once for the records. New records are read uncommitted, as they are written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
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
from fencepost.client.failures import BrokerError, DeadlinePassed, Unreachable
from fencepost.client.fetching import PAUSE_S, FetchedPartition, TopicReader, fetch_partitions
from fencepost.counting import counted
from fencepost.diagnose.collect.reading import Start, StartKind, TransactionalIds, sound_batches, start_offset
from fencepost.diagnose.tail.documents import EndedOffsets, ReadMarker, ReadRecord, Remark, TailEvent, marker_fate
from fencepost.diagnose.tail.outcomes import AbortedSince, Fate, LogBatch, MarkerIndex, OpenTracker, decide_fates
from fencepost.protocol import errors
from fencepost.protocol.batch import Buffer
from fencepost.protocol.records import iter_records

WAIT_MS = 500
LEAST_WAIT_MS = 50
# The position is below the last stable offset, and yet there is nothing to read: the records are compacted away.
EMPTY_FETCHES = 3


class Span(NamedTuple):
    """The offsets of a partition that exist."""

    start: int
    end: int


class TopicTail:
    """Reads some partitions of one topic. `present` comes first, then perhaps `arriving`."""

    def __init__(self, client: KafkaClient, topic: str, partition: int | None = None) -> None:
        self._client = client
        self._reader = TopicReader(client, topic)
        count = len(self._reader.topic.leaders)
        if partition is not None and partition >= count:
            there = counted(count, "partition")
            raise BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}", f"the topic has {there}")
        numbers = range(count) if partition is None else [partition]
        self.partitions = [NamedPartition(topic, number) for number in numbers]
        self._names = TransactionalIds(client)
        self._open = {where: OpenTracker() for where in self.partitions}
        self._positions: dict[NamedPartition, int] = {}
        self._name_problem = ""

    # --- what is there --------------------------------------------------------------------------------------

    def present(self, start: Start) -> Iterator[TailEvent]:
        """The records from the start on, up to the high watermark of this moment, partition by partition."""
        spans, by_time = self._spans(), {}
        if start.kind is StartKind.TIME:
            by_time = self._ask_offsets(start.number)
        for where, span in spans.items():
            position, remark = start_offset(start, where, span.start, span.end, by_time.get(where, -1))
            if remark:
                yield Remark(remark)
            self._positions[where] = span.end
            position = yield from self._stable(where, position, span.end)
            yield from self._unstable(where, position, span.end)

    def _spans(self) -> dict[NamedPartition, Span]:
        starts = self._ask_offsets(EARLIEST)
        ends = self._ask_offsets()
        return {where: Span(starts[where], ends[where]) for where in self.partitions}

    def _ask_offsets(self, timestamp: int = -1) -> dict[NamedPartition, int]:
        answers = list_offsets(self._client, self.partitions, timestamp=timestamp)
        if answers.problems:
            raise DeadlinePassed(answers.problems[0])
        return answers.found

    def _stable(self, where: NamedPartition, position: int, end: int) -> Generator[TailEvent, None, int]:
        """Read up to the last stable offset, with the aborted index. Returns the position that it reached."""
        empty = 0
        while position < end:
            fetched = self._reader.fetch(where, position, READ_COMMITTED, LEAST_WAIT_MS if empty else 0)
            if fetched.error_code == errors.OFFSET_OUT_OF_RANGE:
                before, position = position, self._reader.nearest(where, position)
                yield Remark(_gap(where, before, position))
                continue
            chunk = self._chunk(where, fetched.records, position, end)
            if not chunk:
                empty += 1
                if position < fetched.last_stable_offset and empty < EMPTY_FETCHES:
                    continue
                return max(position, min(fetched.last_stable_offset, end))
            empty = 0
            batches = [batch for batch, _ in chunk]
            aborted = [AbortedSince(*txn) for txn in fetched.aborted]
            fates = decide_fates(batches, MarkerIndex(batches), aborted, fetched.last_stable_offset)
            yield from self._events(where, chunk, fates, position)
            position = batches[-1].header.last_offset + 1
        return position

    def _unstable(self, where: NamedPartition, position: int, end: int) -> Iterator[TailEvent]:
        """Read what is above the last stable offset, after a scan for its markers."""
        markers = MarkerIndex()
        for found in self._chunks(where, position, end):
            if isinstance(found, Remark):
                continue  # The second pass reports it.
            for batch, _ in found:
                markers.add(batch)
        for found in self._chunks(where, position, end):
            if isinstance(found, Remark):
                yield found
                continue
            fates = decide_fates([batch for batch, _ in found], markers)
            yield from self._events(where, found, fates, position)

    def _chunks(
        self, where: NamedPartition, position: int, end: int
    ) -> Iterator[list[tuple[LogBatch, Buffer]] | Remark]:
        empty = 0
        while position < end and empty < EMPTY_FETCHES:
            fetched = self._reader.fetch(where, position, READ_UNCOMMITTED, LEAST_WAIT_MS if empty else 0)
            if fetched.error_code == errors.OFFSET_OUT_OF_RANGE:
                before, position = position, self._reader.nearest(where, position)
                yield Remark(_gap(where, before, position))
                continue
            chunk = self._chunk(where, fetched.records, position, end)
            empty = 0 if chunk else empty + 1
            if chunk:
                yield chunk
                position = chunk[-1][0].header.last_offset + 1

    # --- what arrives ---------------------------------------------------------------------------------------

    def arriving(self, is_over: Callable[[], bool]) -> Iterator[TailEvent]:
        """The records that are written from now on, until `is_over`. A cluster that does not answer is asked again."""
        complained = ""
        while not is_over():
            try:
                fetched = self._fetch_all()
                complained = ""
            except (BrokerError, Unreachable) as e:
                self._reader.check(e)
                if not complained:
                    complained = str(e)
                    yield Remark(f"{e}; trying again")
                time.sleep(PAUSE_S)
                continue
            for where, found in fetched.items():
                yield from self._arrived(where, found)

    def _fetch_all(self) -> dict[NamedPartition, FetchedPartition]:
        by_leader: dict[int, dict[int, int]] = {}
        info = self._client.topic(self._reader.topic.name)
        for where, position in self._positions.items():
            node_id = info.leaders[where.partition] if where.partition < len(info.leaders) else -1
            by_leader.setdefault(node_id, {})[where.partition] = position
        if -1 in by_leader:
            raise BrokerError(errors.LEADER_NOT_AVAILABLE, f"{self._reader.topic.name}-{min(by_leader[-1])}")
        wait_ms = max(WAIT_MS // len(by_leader), LEAST_WAIT_MS)
        fetched = {}
        for node_id, positions in by_leader.items():
            leader = self._client.broker(node_id)
            answers = fetch_partitions(self._client, leader, self._reader.topic, positions, READ_UNCOMMITTED, wait_ms)
            for number, found in answers.items():
                if found.error_code not in (errors.NONE, errors.OFFSET_OUT_OF_RANGE):
                    raise BrokerError(found.error_code, f"reading {self._reader.topic.name}-{number}")
                fetched[NamedPartition(self._reader.topic.name, number)] = found
        return fetched

    def _arrived(self, where: NamedPartition, fetched: FetchedPartition) -> Iterator[TailEvent]:
        position = self._positions[where]
        if fetched.error_code == errors.OFFSET_OUT_OF_RANGE:
            yield from self._after_a_gap(where, position)
            return
        chunk = self._chunk(where, fetched.records, position)
        batches = [batch for batch, _ in chunk]
        if batches:
            # Moved first: after Ctrl-C in the middle, nothing is read again.
            self._positions[where] = batches[-1].header.last_offset + 1
            yield from self._events(where, chunk, decide_fates(batches, MarkerIndex(batches)), position)

    def _after_a_gap(self, where: NamedPartition, position: int) -> Iterator[TailEvent]:
        """Offsets were deleted before they were read, perhaps with markers in them."""
        start = self._positions[where] = self._reader.nearest(where, position)
        yield Remark(_gap(where, position, start))
        producers = describe_producers(self._client, [where]).found.get(where, ())
        open_since = {p.producer_id: p.txn_start_offset for p in producers}
        for lost in self._open[where].lose(open_since):
            yield EndedOffsets(where, lost, Fate.UNKNOWN, None, self._names.of(lost.producer_id))

    # --- both -----------------------------------------------------------------------------------------------

    def _chunk(
        self, where: NamedPartition, records: Buffer, position: int, end: int | None = None
    ) -> list[tuple[LogBatch, Buffer]]:
        """The sound batches of an answer, and the transactional ids of their producers."""
        chunk = sound_batches(where, records, position, end)
        self._names.learn({batch.header.producer_id for batch, _ in chunk if batch.header.is_transactional})
        return chunk

    def _events(
        self, where: NamedPartition, chunk: list[tuple[LogBatch, Buffer]], fates: list[Fate | None], position: int
    ) -> Iterator[TailEvent]:
        if self._names.problems and self._names.problems[0] != self._name_problem:
            self._name_problem = self._names.problems[0]
            yield Remark(self._name_problem)
        for (batch, content), fate in zip(chunk, fates, strict=True):
            name = self._names.of(batch.header.producer_id) if batch.header.is_transactional else None
            if batch.marker is not None:
                yield ReadMarker(where, batch.marker.offset, batch.marker, name)
                if (ended := self._open[where].end(batch.marker)) is not None:
                    yield EndedOffsets(where, ended, marker_fate(batch.marker), batch.marker.offset, name)
            elif fate is not None:
                # A batch may begin before the position: the broker sends batches whole.
                shown = [record for record in iter_records(content) if record.offset >= position]
                if fate is Fate.OPEN and shown:
                    self._open[where].show(batch.header, shown[0].offset, shown[-1].offset, len(shown))
                yield from (ReadRecord(where, record, batch.header, fate, name) for record in shown)


def _gap(where: NamedPartition, position: int, continued: int) -> str:
    if continued > position:
        return f"{where}: offsets {position} to {continued - 1} were deleted before they were read"
    return f"{where}: offset {position} does not exist any more; reading goes on at {continued}"
