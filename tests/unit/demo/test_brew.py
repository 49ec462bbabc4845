"""The checks of the brew demo fail when they should: one wrong history for each."""

from __future__ import annotations

import random

import pytest

from fencepost.demo.brew import Attempt, section_of_readers, toss
from fencepost.demo.topics import TOPICS, Seen

TOSSES = [Attempt(1, "a", True), Attempt(2, "b", False), Attempt(3, "c", True)]
START = {(topic, 0): 100 for topic in TOPICS}
END = {(topic, 0): 106 for topic in TOPICS}


def seen(*order_ids: str) -> list[Seen]:
    return [Seen(topic, 0, 100 + i, key, "{}") for topic in TOPICS for i, key in enumerate(order_ids)]


def failed(committed: list[Seen], uncommitted: list[Seen], end: dict[tuple[str, int], int] = END) -> list[int]:
    """Which of the four checks fail."""
    section = section_of_readers(TOSSES, START, end, committed, uncommitted)
    assert all(check.evidence or check.found for check in section.checks if not check.holds)
    return [i for i, check in enumerate(section.checks) if not check.holds]


def test_a_right_history_passes() -> None:
    assert failed(seen("a", "c"), seen("a", "b", "c")) == []


@pytest.mark.parametrize(
    ("committed", "checks"),
    [
        (seen("a"), [0, 1]),
        (seen("a", "b", "c"), [0, 1]),
        (seen("a", "b"), [1]),
        (seen("a", "a", "c"), [0, 1]),
        (seen("a", "a"), [1]),
        (seen("a", "c")[:-1], [0, 1]),
    ],
    ids=["lost", "aborted and seen", "aborted instead", "doubled", "doubled and lost", "half an order"],
)
def test_a_wrong_committed_history_fails(committed: list[Seen], checks: list[int]) -> None:
    assert failed(committed, seen("a", "b", "c")) == checks


def test_a_record_that_was_never_written_fails() -> None:
    assert failed(seen("a", "c"), seen("a", "c")) == [2]


def test_a_missing_marker_fails() -> None:
    assert failed(seen("a", "c"), seen("a", "b", "c"), {**END, (TOPICS[1], 0): 105}) == [3]


def test_the_same_seed_tosses_the_same_coins() -> None:
    first, second = (toss("run", 50, 0.5, random.Random(7)) for _ in range(2))
    assert first == second
    assert 10 < sum(attempt.commit for attempt in first) < 40
    assert not any(attempt.commit for attempt in toss("run", 50, 0, random.Random(7)))
    assert all(attempt.commit for attempt in toss("run", 50, 1, random.Random(7)))
