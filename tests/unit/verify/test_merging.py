"""One history from the parts of its clients."""

from __future__ import annotations

from fencepost.verify.history import Begin, TxnEnded, encode, merge


def line(at: int, by: str) -> bytes:
    return encode(Begin(at, by, 0)).encode()


def test_lines_are_in_the_order_of_their_times() -> None:
    first = [line(1, "a"), line(5, "a")]
    second = [line(2, "b"), line(3, "b"), line(9, "b")]
    assert list(merge([first, second])) == [line(1, "a"), line(2, "b"), line(3, "b"), line(5, "a"), line(9, "b")]


def test_events_of_one_client_with_the_same_time_keep_their_order() -> None:
    part = [encode(TxnEnded(1, "a", 1, "committed")).encode(), line(1, "a")]
    assert list(merge([part, [line(1, "b")]])) == [*part, line(1, "b")]


def test_a_line_that_a_kill_cut_off_is_left_out() -> None:
    assert list(merge([[line(1, "a"), line(2, "a")[:-1]]])) == [line(1, "a")]


def test_no_parts_make_no_lines() -> None:
    assert list(merge([])) == []
    assert list(merge([[]])) == []
