from __future__ import annotations

import pytest

from fencepost.machines.timers import SWEEP_AT, Timers


def test_timers_run_in_the_order_of_their_deadlines() -> None:
    timers = Timers()
    ran: list[int] = []
    for deadline_ms in (30, 10, 20, 40):
        timers.at(deadline_ms, lambda now_ms, due=deadline_ms: ran.append(due))  # type: ignore[misc]
    timers.advance(30)
    assert ran == [10, 20, 30]
    assert timers.next_deadline_ms() == 40


def test_cancelled_timers_do_not_pile_up_until_a_deadline_far_away() -> None:
    timers = Timers()
    kept = timers.at(10**12, lambda now_ms: None)
    for i in range(20 * SWEEP_AT):
        timers.at(10**12 + i, lambda now_ms: None).cancel()
        assert len(timers) <= 2 * SWEEP_AT
    assert timers.next_deadline_ms() == kept.deadline_ms


def test_live_timers_survive_a_sweep() -> None:
    timers = Timers()
    ran: list[int] = []
    for i in range(3 * SWEEP_AT):
        timer = timers.at(i, ran.append)
        if i % 2:
            timer.cancel()
    timers.advance(10**9)
    assert len(ran) == 3 * SWEEP_AT / 2


def test_a_repeated_action_that_fails_is_tried_again() -> None:
    timers = Timers()
    ran: list[int] = []

    def fail(now_ms: int) -> None:
        ran.append(now_ms)
        raise ValueError

    timers.every(10, 0, fail)
    for now_ms in (10, 20):
        with pytest.raises(ValueError):
            timers.advance(now_ms)
    assert ran == [10, 20]
