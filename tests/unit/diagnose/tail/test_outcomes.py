"""The outcome of records, decided over batches made by hand."""

from __future__ import annotations

from fencepost.diagnose.tail.outcomes import (
    AbortedSince,
    Fate,
    LogBatch,
    MarkerIndex,
    OpenOffsets,
    OpenTracker,
    decide_fates,
)
from fencepost.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, Marker

PLAIN, COMMITTED, ABORTED, OPEN = Fate.PLAIN, Fate.COMMITTED, Fate.ABORTED, Fate.OPEN


def header(offset: int, producer_id: int, attributes: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, attributes, count - 1, 0, 0, producer_id, epoch, 0, count)


def data(offset: int, producer_id: int, count: int = 1, epoch: int = 0) -> LogBatch:
    return LogBatch(header(offset, producer_id, TRANSACTIONAL, count, epoch))


def plain(offset: int, producer_id: int = -1) -> LogBatch:
    return LogBatch(header(offset, producer_id, 0))


def marker(offset: int, producer_id: int, commit: bool, epoch: int = 0) -> LogBatch:
    control = header(offset, producer_id, TRANSACTIONAL | CONTROL, epoch=epoch)
    return LogBatch(control, Marker(producer_id, epoch, commit, 0, offset, 0))


def fates(batches: list[LogBatch], aborted: tuple[AbortedSince, ...] = (), stable_end: int = -1) -> list[Fate | None]:
    return decide_fates(batches, MarkerIndex(batches), aborted, stable_end)


def test_a_transaction_ends_at_the_next_marker_of_its_producer_and_at_no_other() -> None:
    log = [data(0, 1), data(1, 2), marker(2, 2, False), data(3, 1), marker(4, 1, True), data(5, 1)]
    assert fates(log) == [COMMITTED, ABORTED, None, COMMITTED, None, OPEN]


def test_the_epoch_of_a_marker_does_not_matter() -> None:
    log = [data(0, 1, epoch=4), marker(1, 1, True, epoch=5), data(2, 1, epoch=5), marker(3, 1, False, epoch=6)]
    assert fates(log) == [COMMITTED, None, ABORTED, None]


def test_a_second_marker_changes_nothing() -> None:
    log = [data(0, 1), marker(1, 1, True), marker(2, 1, False), data(3, 1)]
    assert fates(log) == [COMMITTED, None, None, OPEN]


def test_a_record_outside_a_transaction_is_plain_even_if_its_producer_has_one() -> None:
    assert fates([plain(0), plain(1, 7), data(2, 7), marker(3, 7, False)]) == [PLAIN, PLAIN, ABORTED, None]


def test_below_the_last_stable_offset_the_aborted_index_decides_what_no_marker_of_the_chunk_does() -> None:
    log = [data(10, 1), data(11, 2), data(12, 3)]
    assert fates(log, (AbortedSince(2, 4),), stable_end=13) == [COMMITTED, ABORTED, COMMITTED]


def test_above_the_last_stable_offset_a_transaction_without_a_marker_is_open() -> None:
    assert fates([data(10, 1), data(11, 2)], stable_end=11) == [COMMITTED, OPEN]
    assert fates([data(10, 1, count=5)], stable_end=12) == [OPEN]


def test_an_aborted_transaction_that_begins_later_does_not_taint_the_one_before() -> None:
    log = [data(0, 1), marker(1, 1, True), data(2, 1)]
    assert fates(log, (AbortedSince(1, 2),), stable_end=5) == [COMMITTED, None, ABORTED]


def test_a_chunk_that_starts_in_the_middle_of_an_aborted_transaction_knows_it() -> None:
    log = [data(6, 1), marker(7, 1, False), data(8, 1)]
    assert fates(log, (AbortedSince(1, 3),), stable_end=20) == [ABORTED, None, COMMITTED]


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    emptied = LogBatch(header(1, 1, TRANSACTIONAL | CONTROL, count=1)._replace(record_count=0))
    assert fates([data(0, 1), emptied, marker(4, 1, True)]) == [COMMITTED, None, None]


def test_markers_from_a_scan_ahead_decide_a_chunk_without_markers() -> None:
    ahead = MarkerIndex([marker(50, 1, False), marker(60, 1, True)])
    assert decide_fates([data(10, 1), data(55, 1), data(61, 1)], ahead) == [ABORTED, COMMITTED, OPEN]


def test_offsets_that_were_shown_as_open_end_together_at_their_marker() -> None:
    tracker = OpenTracker()
    tracker.show(data(3, 1, 2).header, 3, 4, 2)
    tracker.show(data(9, 1).header, 9, 9, 1)
    ended = marker(10, 1, True).marker
    assert ended is not None
    assert tracker.end(ended) == OpenOffsets(1, 0, 3, 9, 3)
    assert tracker.end(ended) is None


def test_after_a_gap_only_the_transactions_that_are_still_the_same_stay_open() -> None:
    tracker = OpenTracker()
    for producer_id in (1, 2, 3):
        tracker.show(data(10 + producer_id, producer_id).header, 10 + producer_id, 10 + producer_id, 1)
    # 1 is still open since before it was shown, 2 has begun another transaction, 3 has none.
    lost = tracker.lose({1: 5, 2: 400, 3: -1})
    assert [offsets.producer_id for offsets in lost] == [2, 3]
    assert len(tracker) == 1
