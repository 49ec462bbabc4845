"""The file of a history, and how it is made from the parts of clients."""

from __future__ import annotations

import json

import pytest

from fencepost.verify.history import (
    EVENTS,
    Begin,
    Event,
    Header,
    NotAHistory,
    Poll,
    Send,
    TxnEnded,
    TxnOutcome,
    decode,
    encode,
    encode_header,
    merge,
)

HEADER = encode_header(Header(7, {"bootstrap": "localhost:9092"}, {"orders": 2}))
EXAMPLES: list[Event] = [
    Begin(1, "writer-0", 17),
    Send(2, "writer-0", 17, "writer-0:17:0", "orders", 1),
    TxnEnded(3, "writer-0", 17, TxnOutcome.COMMITTED),
    Poll(4, "reader-0", "orders", 1, [[40, "writer-0:17:0"]]),
]


def test_events_come_back_as_they_were_written() -> None:
    header, events = decode([HEADER, *map(encode, EXAMPLES)])
    assert header == Header(7, {"bootstrap": "localhost:9092"}, {"orders": 2})
    assert list(events) == EXAMPLES


def test_every_event_has_its_time_and_its_client_first() -> None:
    assert all(kind._fields[:2] == ("at", "by") for kind in EVENTS.values())


def test_a_line_that_was_being_written_when_its_client_was_killed_is_no_event() -> None:
    _, events = decode([HEADER, encode(EXAMPLES[0]), encode(EXAMPLES[1])[:-5]])
    assert list(events) == EXAMPLES[:1]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{]\n", "line 2: no JSON: "),
        ("[1]\n", "line 2: no JSON object"),
        ('{"event":"brew"}\n', "line 2: 'brew' is no event"),
        ('{"event":["begin"]}\n', "line 2: .* is no event"),
        ('{"event":"begin","at":1,"by":"w"}\n', "line 2: the fields are at, by; this event has at, by, txn"),
        (
            '{"event":"begin","at":1,"by":"w","txn":1,"tea":2}\n',
            "line 2: the fields are at, by, tea, txn; this event has at, by, txn",
        ),
    ],
)
def test_a_line_that_is_no_event_is_named(line: str, complaint: str) -> None:
    _, events = decode([HEADER, line])
    with pytest.raises(NotAHistory, match=complaint):
        list(events)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "line 1: the first line is no header"),
        ([encode(EXAMPLES[0])], "line 1: the first line is no header"),
        ([json.dumps({"event": "header", "format": 9}) + "\n"], "line 1: the format is 9, this version reads 1"),
    ],
)
def test_a_file_that_is_no_history_is_refused(lines: list[str], complaint: str) -> None:
    with pytest.raises(NotAHistory, match=complaint):
        decode(lines)


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
