"""The verdict of a task on a broker's answer."""

from __future__ import annotations

import pytest

from fencepost.spark.task.produce_answer import ProduceVerdict, judge


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        ([0], ProduceVerdict.WRITTEN),
        # The leader moved, or is not known yet: the same bytes are a duplicate at worst.
        ([3, 5, 6, 7, 13, 19, 20, 51, 56], ProduceVerdict.AGAIN),
        ([10, 18], ProduceVerdict.TOO_LARGE),
        # Sequences, epochs, states: this transaction is over, the next may succeed.
        ([45, 46, 47, 48, 59, 90, 100, 120], ProduceVerdict.BROKEN),
        # Another attempt would get the same answer.
        ([2, 17, 29, 31, 32, 53, 76, 87], ProduceVerdict.FATAL),
    ],
)
def test_every_answer_means_one_thing(codes: list[int], verdict: ProduceVerdict) -> None:
    assert {code: judge(code) for code in codes} == dict.fromkeys(codes, verdict)


def test_a_code_of_the_future_breaks_the_transaction() -> None:
    assert judge(9999) is ProduceVerdict.BROKEN
