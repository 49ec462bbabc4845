"""Outcomes against a model: any log, any part of it, compacted or not, read at once or as it grows."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fencepost.diagnose.tail.outcomes import AbortedSince, Fate, LogBatch, MarkerIndex, OpenTracker, decide_fates
from fencepost.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, Marker

# What is appended: by which producer, and what. A commit or abort without an open transaction is a second marker.
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 3)),
    max_size=30,
)


class AbortedSpan(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int


class Log(NamedTuple):
    """A log with the outcome of each batch; None for a marker."""

    batches: list[LogBatch]
    truth: list[Fate | None]
    aborted: list[AbortedSpan]
    last_stable_offset: int


def build(steps: list[tuple[int, str, int]]) -> Log:
    batches: list[LogBatch] = []
    truth: list[Fate | None] = []
    aborted: list[AbortedSpan] = []
    open_: dict[int, list[int]] = {}  # The indexes of the batches of each open transaction.
    offset = 0
    for producer_id, what, count in steps:
        if what in ("commit", "abort"):
            control = BatchHeader(offset, 100, 0, 2, 0, TRANSACTIONAL | CONTROL, 0, 0, 0, producer_id, 0, -1, 1)
            batches.append(LogBatch(control, Marker(producer_id, 0, what == "commit", 0, offset, 0)))
            truth.append(None)
            mine = open_.pop(producer_id, [])
            for index in mine:
                truth[index] = Fate.COMMITTED if what == "commit" else Fate.ABORTED
            if mine and what == "abort":
                aborted.append(AbortedSpan(producer_id, batches[mine[0]].header.base_offset, offset))
            offset += 1
            continue
        attributes = TRANSACTIONAL if what == "data" else 0
        header = BatchHeader(offset, 100, 0, 2, 0, attributes, count - 1, 0, 0, producer_id, 0, 0, count)
        if what == "data":
            open_.setdefault(producer_id, []).append(len(batches))
        batches.append(LogBatch(header))
        truth.append(Fate.OPEN if what == "data" else Fate.PLAIN)
        offset += count
    first_open = [batches[indexes[0]].header.base_offset for indexes in open_.values()]
    return Log(batches, truth, aborted, min(first_open, default=offset))


def index_for(log: Log, first: int, last: int) -> list[AbortedSince]:
    """What a broker sends with these offsets: every aborted transaction that overlaps them."""
    return [
        AbortedSince(span.producer_id, span.first_offset)
        for span in log.aborted
        if span.marker_offset >= first and span.first_offset <= last
    ]


@given(STEPS)
def test_a_log_that_is_read_whole_has_the_outcomes_of_the_model(steps: list[tuple[int, str, int]]) -> None:
    log = build(steps)
    assert decide_fates(log.batches, MarkerIndex(log.batches)) == log.truth


@given(STEPS, st.data())
def test_any_part_below_the_last_stable_offset_is_decided_by_the_aborted_index(
    steps: list[tuple[int, str, int]], drawn: st.DataObject
) -> None:
    log = build(steps)
    stable = sum(batch.header.last_offset < log.last_stable_offset for batch in log.batches)
    start = drawn.draw(st.integers(0, stable), label="start")
    end = drawn.draw(st.integers(start, stable), label="end")
    part = log.batches[start:end]
    if part:
        aborted = index_for(log, part[0].header.base_offset, part[-1].header.last_offset)
        fates = decide_fates(part, MarkerIndex(part), aborted, log.last_stable_offset)
        assert fates == log.truth[start:end]
        # A scan that knows no markers at all comes to the same result.
        assert decide_fates(part, MarkerIndex(), aborted, log.last_stable_offset) == log.truth[start:end]


@given(STEPS, st.data())
def test_compaction_does_not_change_the_outcome_of_what_is_left(
    steps: list[tuple[int, str, int]], drawn: st.DataObject
) -> None:
    log = build(steps)
    # Any record may go; a marker goes only if no record of its transaction is left.
    kept = {
        n
        for n, batch in enumerate(log.batches)
        if batch.marker is None
        and (batch.header.base_offset >= log.last_stable_offset or drawn.draw(st.booleans(), label=f"keep {n}"))
    }
    needed: set[int] = set()
    waiting: set[int] = set()
    for n, batch in enumerate(log.batches):
        if batch.marker is None and n in kept and batch.header.is_transactional:
            waiting.add(batch.header.producer_id)
        elif batch.marker is not None and batch.marker.producer_id in waiting:
            needed.add(n)
            waiting.discard(batch.marker.producer_id)
    left = [
        n
        for n, batch in enumerate(log.batches)
        if n in kept or n in needed or (batch.marker is not None and drawn.draw(st.booleans(), label=f"marker {n}"))
    ]
    batches = [log.batches[n] for n in left]
    truth = [log.truth[n] for n in left]
    assert decide_fates(batches, MarkerIndex(batches)) == truth
    if batches:
        aborted = index_for(log, batches[0].header.base_offset, batches[-1].header.last_offset)
        assert decide_fates(batches, MarkerIndex(batches), aborted, log.last_stable_offset) == truth


@given(STEPS, st.data())
def test_a_log_that_is_followed_in_chunks_has_told_every_outcome_in_the_end(
    steps: list[tuple[int, str, int]], drawn: st.DataObject
) -> None:
    log = build(steps)
    told: dict[int, Fate | None] = {}  # By base offset.
    tracker = OpenTracker()
    shown_open: dict[int, list[int]] = {}
    at = 0
    while at < len(log.batches):
        size = drawn.draw(st.integers(1, 5), label="chunk")
        chunk = log.batches[at : at + size]
        at += size
        for batch, fate in zip(chunk, decide_fates(chunk, MarkerIndex(chunk)), strict=True):
            header = batch.header
            told[header.base_offset] = fate
            if fate is Fate.OPEN:
                tracker.show(header, header.base_offset, header.last_offset, header.record_count)
                shown_open.setdefault(header.producer_id, []).append(header.base_offset)
            if batch.marker is not None and (ended := tracker.end(batch.marker)) is not None:
                offsets = shown_open.pop(batch.marker.producer_id)
                assert ended.first_offset == offsets[0]
                told.update(dict.fromkeys(offsets, Fate.COMMITTED if batch.marker.commit else Fate.ABORTED))
    assert list(told.values()) == log.truth
    assert len(tracker) == len({b.header.producer_id for b, f in zip(log.batches, log.truth) if f is Fate.OPEN})
