"""Where windows begin and end, and which producers need a look at what follows."""

from __future__ import annotations

from fencepost.diagnose.strip.window import undecided_producers, window_end, window_start
from tests.unit.diagnose.strip.logs import data, marker, plain, record


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
