"""Where windows begin and end, and which producers need a look at what follows; kept records."""

from __future__ import annotations

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.strip.strip import diagnose_strip
from fencepost.diagnose.strip.window import (
    LARGE_RECORDS,
    MOST_KEPT_BATCHES,
    DecodedBatches,
    records_of,
    undecided_producers,
    window_end,
    window_start,
)
from tests.unit.diagnose.strip.logs import data, marker, plain, record, window


def test_a_window_ends_after_so_many_records_even_within_a_batch() -> None:
    headers = [plain(0, *[record()] * 10).header, plain(20, *[record()] * 10).header]
    assert window_end(headers, 0, 5, 30) == 5
    assert window_end(headers, 4, 5, 30) == 9
    assert window_end(headers, 4, 6, 30) == 10
    assert window_end(headers, 4, 8, 30) == 22  # The gap does not count.
    assert window_end(headers, 0, 100, 40) == 40


def test_a_window_begins_so_many_records_before_its_end() -> None:
    headers = [plain(0, *[record()] * 10).header, plain(20, *[record()] * 10).header]
    assert window_start(headers, 30, 5, 0) == 25
    assert window_start(headers, 30, 10, 0) == 20
    assert window_start(headers, 30, 12, 0) == 8
    assert window_start(headers, 25, 5, 0) == 20
    assert window_start(headers, 30, 100, 3) == 3


def test_a_producer_is_undecided_if_its_transaction_has_ended_behind_the_window() -> None:
    log = [b.batch for b in (plain(0), data(1, 7), data(2, 8), marker(3, 8, True), data(4, 9), data(5, 8))]
    assert undecided_producers(log, -1, {9: 4}) == {7, 8}
    assert undecided_producers(log, 2, {9: 4}) == {8}
    assert undecided_producers(log, -1, None) == {7, 8, 9}
    assert undecided_producers(log, -1, {7: 1, 8: 5, 9: 4}) == set()
    assert undecided_producers(log, -1, {7: 30, 8: 5, 9: 4}) == {7}  # A later transaction is another one.


LARGE = plain(0, *[record(b"%d" % n) for n in range(LARGE_RECORDS)])
END = {"first_offset": LARGE_RECORDS - 3}


def test_a_second_look_at_a_window_does_not_decode_its_large_batches_again() -> None:
    decoded = DecodedBatches()
    first = decoded.records_of(window(LARGE, **END), LARGE)
    assert [r.value for r in first] == [b"997", b"998", b"999"]
    assert decoded.records_of(window(LARGE, **END), LARGE) is first
    # What comes after the batch does not matter.
    more = plain(LARGE_RECORDS)
    assert decoded.records_of(window(LARGE, more, **END), LARGE) is first


def test_another_window_partition_or_content_is_decoded_for_itself() -> None:
    decoded = DecodedBatches()
    first = decoded.records_of(window(LARGE, **END), LARGE)
    other = plain(0, *[record(b"other")] * LARGE_RECORDS)
    for where, batch in (
        (window(LARGE, first_offset=LARGE_RECORDS - 4), LARGE),
        (window(LARGE, where=NamedPartition("orders", 1), **END), LARGE),
        (window(other, **END), other),
    ):
        found = decoded.records_of(where, batch)
        assert found is not first
        assert found == records_of(where, batch)


def test_the_strip_is_the_same_with_kept_batches() -> None:
    decoded = DecodedBatches()
    shown = window(LARGE, plain(LARGE_RECORDS), **END)
    for _ in range(2):
        assert diagnose_strip(shown, None, decoded.records_of) == diagnose_strip(shown)


def test_few_batches_are_kept_and_no_large_values() -> None:
    decoded = DecodedBatches()
    first = decoded.records_of(window(LARGE, **END), LARGE)
    for n in range(MOST_KEPT_BATCHES):
        decoded.records_of(window(LARGE, first_offset=n), LARGE)
    assert decoded.records_of(window(LARGE, **END), LARGE) is not first
    heavy = plain(0, *[record(b"x" * 1000)] * LARGE_RECORDS)
    assert decoded.records_of(window(heavy), heavy) is not decoded.records_of(window(heavy), heavy)
