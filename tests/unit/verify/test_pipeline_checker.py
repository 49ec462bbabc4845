"""The judge of `fencepost verify pipeline`: short histories that it must and must not accuse."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost.verify.checkers.pipeline import check_pipeline
from fencepost.verify.history import Committed, Event, Header, Poll, Rest, Send, Watermarks

ONE, TWO = ["paid"], ["paid", "audit"]
REST = Rest(99, "verifier")


def header(outputs: Sequence[str]) -> Header:
    return Header(7, {"verify": "pipeline", "input": "orders"}, {"orders": 1, **dict.fromkeys(outputs, 1)})


def sent(*ids: str) -> list[Event]:
    return [Send(n, "feeder", None, id_, "orders", 0) for n, id_ in enumerate(ids)]


def inputs(*ids: str) -> Poll:
    """The committed inputs, at offsets from 0 on."""
    return Poll(50, "inputs", "orders", 0, list(enumerate(ids)))


def outputs(topic: str, *ids: str) -> Poll:
    return Poll(60, "outputs", topic, 0, list(enumerate(ids)))


def committed(offset: int) -> Committed:
    return Committed(98, "verifier", "tills", [("orders", 0, offset)])


def kinds(topics: Sequence[str], *events: Event) -> list[str]:
    return [anomaly.kind for anomaly in check_pipeline(header(topics), events)]


@pytest.mark.parametrize(
    ("why", "topics", "events"),
    [
        ("each input has one output", ONE, [inputs("a", "b"), outputs("paid", "a", "b"), REST]),
        ("one in each topic", TWO, [inputs("a"), outputs("paid", "a"), outputs("audit", "a"), REST]),
        ("the offset is the end", ONE, [inputs("a", "b"), outputs("paid", "a", "b"), committed(2), REST]),
        ("markers follow the last input", ONE, [inputs("a", "b"), outputs("paid", "a", "b"), committed(5), REST]),
        ("an aborted input has no output", ONE, [inputs("a"), outputs("paid", "a"), committed(3), REST]),
        ("an input that is there twice", ONE, [inputs("a", "a"), outputs("paid", "a", "a"), REST]),
        ("the run was interrupted", TWO, [inputs("a", "b"), outputs("paid", "a"), committed(0)]),
    ],
)
def test_a_right_history_is_not_accused(why: str, topics: list[str], events: list[Event]) -> None:
    assert kinds(topics, *sent("a", "b"), *events) == [], why


ACCUSED: list[tuple[str, list[str], list[Event]]] = [
    ("duplicate", ONE, [inputs("a", "b"), outputs("paid", "a", "b", "a"), REST]),
    ("duplicate", ONE, [outputs("paid", "a", "a")]),
    ("missing-output", ONE, [inputs("a", "b"), outputs("paid", "a"), REST]),
    ("offsets-ahead", ONE, [inputs("a", "b"), outputs("paid", "b"), committed(2), REST]),
    ("unprocessed-input", ONE, [inputs("a", "b"), outputs("paid", "a"), committed(1), REST]),
    ("offsets-behind", ONE, [inputs("a", "b"), outputs("paid", "a", "b"), committed(1), REST]),
    ("torn-output", TWO, [inputs("a"), outputs("paid", "a"), committed(1), REST]),
    ("aborted-input", ONE, [inputs("a"), outputs("paid", "a", "b"), committed(2), REST]),
    ("invented", ONE, [inputs("a", "b"), outputs("paid", "a", "b", "c"), committed(2), REST]),
    ("stuck-LSO", ONE, [inputs("a"), outputs("paid", "a"), Watermarks(97, "verifier", "paid", 0, 1, 4), REST]),
]


@pytest.mark.parametrize(("kind", "topics", "events"), ACCUSED)
def test_a_wrong_history_is_accused_of_one_thing(kind: str, topics: list[str], events: list[Event]) -> None:
    assert kinds(topics, *sent("a", "b"), *events) == [kind]


def test_a_group_without_offsets_would_process_everything_again() -> None:
    nothing = Committed(98, "verifier", "tills", [])
    [anomaly] = check_pipeline(header(ONE), [*sent("a"), inputs("a"), outputs("paid", "a"), nothing, REST])
    assert anomaly.what == (
        "1 inputs of orders-0 have outputs and will be processed again: the offset of tills does not exist, and a at "
        "offset 0 is the first of them"
    )


def test_the_proof_has_the_input_its_outputs_and_the_offsets() -> None:
    events = [*sent("a", "b"), inputs("a", "b"), outputs("paid", "b"), committed(2), REST]
    [anomaly] = check_pipeline(header(ONE), events)
    assert [type(event).__name__ for event in anomaly.proof] == ["Send", "Poll", "Committed"]
    assert anomaly.what == "a at orders-0 offset 0 has no output, and the offset of tills is 2, past it"
