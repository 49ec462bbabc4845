"""Which part of its time an attempt waited for brokers, and the remedy that follows."""

from __future__ import annotations

from fencepost.spark.driver.time_used import Loss, TimeUsed


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_waits_of_two_threads_at_the_same_time_count_once() -> None:
    clock = Clock()
    used = TimeUsed(clock)
    clock.now_s += 1
    with used.waiting():
        clock.now_s += 2
        with used.waiting():
            clock.now_s += 3
    clock.now_s += 4
    assert (used.took_ms, used.waited_ms) == (10_000, 5_000)


def test_a_wait_that_goes_on_counts_and_so_do_those_of_tasks() -> None:
    clock = Clock()
    used = TimeUsed(clock)
    used.stalled_ms = lambda: 1500
    with used.waiting():
        clock.now_s += 2
        assert used.waited_ms == 2000, "never more than the whole time"
        clock.now_s += 3
        assert used.waited_ms == 5000
    clock.now_s += 5
    assert used.waited_ms == 6500


def test_a_micro_batch_that_worked_for_most_of_the_time_needs_a_longer_timeout_or_less_to_do() -> None:
    loss = Loss(timeout_ms=60_000, took_ms=61_000, waited_ms=5_000)
    assert loss.is_too_slow
    said = loss.describe("reason", 2)
    assert "twice in a row, the last time after 61000 ms, longer than transaction.timeout.ms=60000" in said
    assert "for 5000 ms of them it waited for brokers: reason\n\nhint: raise transaction.timeout.ms" in said


def test_a_micro_batch_that_waited_for_brokers_is_not_told_to_be_smaller() -> None:
    loss = Loss(timeout_ms=60_000, took_ms=61_000, waited_ms=50_000)
    assert loss.is_timeout
    assert not loss.is_too_slow
    said = loss.describe("reason", 0)
    assert said.startswith("the transaction was lost after 61000 ms, longer than transaction.timeout.ms=60000")
    assert "hint: find out which broker" in said


def test_a_micro_batch_that_is_too_slow_without_the_brokers_is_to_blame_however_long_they_took_then() -> None:
    assert Loss(timeout_ms=60_000, took_ms=130_000, waited_ms=69_000).is_too_slow


def test_an_attempt_that_was_broken_in_time_is_no_timeout() -> None:
    loss = Loss(timeout_ms=60_000, took_ms=59_000, waited_ms=0)
    assert not loss.is_timeout
    assert not loss.is_too_slow
