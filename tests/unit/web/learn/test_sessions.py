"""The sessions of Learn: few, closed when they are idle, and all closed at the end."""

from __future__ import annotations

import threading

import pytest

from fencepost.web.learn.sessions import Sessions, TooMany


class Kept:
    def __init__(self) -> None:
        self.is_busy = False
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_session_too_many_is_refused_until_another_is_closed() -> None:
    sessions: Sessions[Kept] = Sessions(most=2)
    first, _ = sessions.open(Kept)
    sessions.open(Kept)
    with pytest.raises(TooMany, match="2 sessions are open, and this workbench runs no more at once"):
        sessions.open(Kept)
    sessions.close(first)
    sessions.open(Kept)
    assert sessions.count() == 2


def test_a_session_that_is_only_watched_is_closed_after_its_idle_time() -> None:
    clock = Clock()
    sessions: Sessions[Kept] = Sessions(idle_s=10, clock=clock)
    watched, watched_session = sessions.open(Kept)
    used, used_session = sessions.open(Kept)
    clock.now = 8
    assert sessions.find(watched) is watched_session
    assert sessions.use(used) is used_session
    clock.now = 15
    sessions.close_idle()
    assert sessions.find(watched) is None
    assert watched_session.is_closed
    assert sessions.find(used) is used_session


def test_a_session_whose_tab_was_closed_gives_its_place_to_the_next_at_once() -> None:
    sessions: Sessions[Kept] = Sessions(most=2)
    _, shown = sessions.open(Kept)
    left, left_session = sessions.open(Kept)
    left_session.is_busy = True  # A demo that plays on.
    sessions.leave(left)
    sessions.open(Kept)
    assert (left_session.is_closed, shown.is_closed) == (True, False)
    with pytest.raises(TooMany):
        sessions.open(Kept)


def test_a_session_whose_tab_was_closed_is_closed_after_a_moment_unless_it_comes_back() -> None:
    clock = Clock()
    sessions: Sessions[Kept] = Sessions(clock=clock)
    closed, closed_session = sessions.open(Kept)
    reloaded, reloaded_session = sessions.open(Kept)
    for id_ in (closed, reloaded):
        sessions.leave(id_)
        sessions.find(id_)  # The last look of the old page, which comes late.
    clock.now = 10
    sessions.find(reloaded)
    clock.now = 31
    sessions.close_idle()
    assert (closed_session.is_closed, reloaded_session.is_closed) == (True, False)


def test_only_if_every_place_is_taken_a_session_that_no_tab_shows_ends_for_another() -> None:
    clock = Clock()
    sessions: Sessions[Kept] = Sessions(most=2, clock=clock)
    _, hidden = sessions.open(Kept)
    shown, shown_session = sessions.open(Kept)
    clock.now = 61
    sessions.find(shown)
    sessions.close_idle()
    assert not hidden.is_closed
    sessions.open(Kept)
    assert (hidden.is_closed, shown_session.is_closed) == (True, False)


def test_a_busy_session_is_not_idle() -> None:
    clock = Clock()
    sessions: Sessions[Kept] = Sessions(idle_s=10, clock=clock)
    id_, session = sessions.open(Kept)
    session.is_busy = True
    clock.now = 15
    sessions.close_idle()
    session.is_busy = False
    clock.now = 24
    sessions.close_idle()
    assert sessions.find(id_) is session
    clock.now = 26
    sessions.close_idle()
    assert session.is_closed


def test_a_session_that_could_not_be_made_leaves_its_place_free() -> None:
    sessions: Sessions[Kept] = Sessions(most=1)

    def fail() -> Kept:
        raise ValueError("no")

    with pytest.raises(ValueError):
        sessions.open(fail)
    sessions.open(Kept)


def test_the_end_closes_every_session_and_opens_no_more() -> None:
    sessions: Sessions[Kept] = Sessions()
    _, one = sessions.open(Kept)
    _, two = sessions.open(Kept)
    sessions.close_all()
    assert one.is_closed
    assert two.is_closed
    with pytest.raises(TooMany):
        sessions.open(Kept)


def test_a_session_that_is_made_during_the_end_is_closed_too() -> None:
    sessions: Sessions[Kept] = Sessions()

    late = Kept()
    was_closed: list[bool] = []

    def end() -> None:
        sessions.close_all()
        was_closed.append(late.is_closed)

    ending = threading.Thread(target=end)

    def make() -> Kept:
        ending.start()
        while not sessions._is_closed:
            pass
        return late

    id_, _ = sessions.open(make)
    assert sessions.find(id_) is None
    ending.join()
    assert was_closed == [True], "the end waits for it"
