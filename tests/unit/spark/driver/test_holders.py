"""A transactional.id has one sink in a process, and passes to the next sink when that one is done."""

from __future__ import annotations

import pytest

from fencepost.spark.driver.holders import Key, hold, release
from fencepost.spark.failures import SinkError

KEY: Key = ("kafka:9092", "refunds-1")


class Sink:
    def __init__(self, *, is_done: bool) -> None:
        self._is_done = is_done

    def give_up(self) -> bool:
        if self._is_done:
            release(KEY, self)
        return self._is_done


def test_a_sink_that_is_not_done_keeps_its_id_and_one_that_is_done_gives_it_up() -> None:
    first, second, third = Sink(is_done=True), Sink(is_done=False), Sink(is_done=True)
    hold(KEY, first)
    hold(KEY, first)
    hold(KEY, second)
    with pytest.raises(SinkError, match=r"refunds-1 is in use by another sink of this process.*\n\nhint: stop the oth"):
        hold(KEY, third)
    hold(("kafka:9092", "refunds-2"), third)
    release(KEY, first)  # It has given the id up, so this changes nothing.
    with pytest.raises(SinkError):
        hold(KEY, third)
    release(KEY, second)
    hold(KEY, third)
    release(KEY, third)
    release(("kafka:9092", "refunds-2"), third)
