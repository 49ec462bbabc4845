"""The sessions that are open: a bounded number, each closed when it was not used for a while.

A page that only watches a session does not use it, so a forgotten tab keeps no broker running. A tab that is closed
says so with `leave`. It may come back, because a reload and a link look the same, so its session stays for a moment.
If every place is taken, a new session gets the place of one that no tab shows.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

MOST = 6
IDLE_S = 600.0
# How long the end waits for all sessions.
CLOSE_S = 4.0
# How long a session waits for a tab that has left.
LEFT_S = 30.0
# A session that no tab has asked for in this time is not shown: the tab is hidden, or its browser has gone.
HIDDEN_S = 60.0
# The last look of a tab may arrive after the word that it leaves.
LATE_LOOK_S = 3.0


class EmbeddedSession(Protocol):
    @property
    def is_busy(self) -> bool:
        """Whether it does something that was asked for, and must not be taken for idle."""

    def close(self) -> None: ...


T = TypeVar("T", bound=EmbeddedSession)


class TooMany(Exception):
    """As many sessions as allowed are open, and all of them are in use."""


@dataclass(slots=True)
class _Place(Generic[T]):
    """An open session, with the times when it was last changed and last looked at."""

    session: T
    used: float
    looked: float
    # When its tab left; None: it has not.
    left: float | None = None

    def look(self, now: float) -> None:
        if self.left is None or now - self.left > LATE_LOOK_S:
            self.left, self.looked = None, now

    def use(self, now: float) -> None:
        self.left, self.used, self.looked = None, now, now

    def is_idle(self, now: float, idle_s: float) -> bool:
        return now - self.used > idle_s or (self.left is not None and now - self.left > LEFT_S)

    def is_shown(self, now: float) -> bool:
        return now - self.looked <= HIDDEN_S


class Sessions(Generic[T]):
    """Sessions by their ids, which cannot be guessed. The owner calls `close_idle` from time to time."""

    def __init__(
        self,
        most: int = MOST,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
        what: str = "sessions",
    ) -> None:
        """`what`: the sessions in messages."""
        self._most = most
        self._idle_s = idle_s
        self._clock = clock
        self._what = what
        self._lock = threading.Condition()
        self._is_closed = False
        self._opening = 0
        self._open: dict[str, _Place[T]] = {}

    def open(self, make: Callable[[], T]) -> tuple[str, T]:
        """A new session and its id. Raises TooMany."""
        self.close_idle()
        replaced: _Place[T] | None = None
        with self._lock:
            if self._is_closed:
                raise TooMany("the workbench ends, and opens nothing more")
            if len(self._open) + self._opening >= self._most:
                replaced = self._take_hidden()
                if replaced is None:
                    raise TooMany(self._refusal())
            self._opening += 1
        id_ = secrets.token_urlsafe(12)
        try:
            if replaced is not None:
                replaced.session.close()
            session = make()
            with self._lock:
                is_late = self._is_closed
                if not is_late:
                    now = self._clock()
                    self._open[id_] = _Place(session, now, now)
            if is_late:
                session.close()
        finally:
            with self._lock:
                self._opening -= 1
                self._lock.notify_all()
        return id_, session

    def _take_hidden(self) -> _Place[T] | None:
        """Removes the session that no tab has shown for the longest time; None: all of them are shown, or busy."""
        now = self._clock()
        hidden = [
            id_
            for id_, place in self._open.items()
            if place.left is not None or not (place.is_shown(now) or place.session.is_busy)
        ]
        # Those whose tab has left come first.
        hidden.sort(key=lambda id_: (self._open[id_].left is None, self._open[id_].looked))
        return self._open.pop(hidden[0]) if hidden else None

    def _refusal(self) -> str:
        return (
            f"{self._most} {self._what} are open, and this workbench runs no more at once: each has a broker of its own"
            f"\n\nhint: close one, or the tab that shows it, and try again. One that is not used for "
            f"{self._idle_s / 60:g} minutes is closed by itself"
        )

    def find(self, id_: str) -> T | None:
        """The session, to look at it."""
        with self._lock:
            place = self._open.get(id_)
            if place is not None:
                place.look(self._clock())
            return None if place is None else place.session

    def use(self, id_: str) -> T | None:
        """The session, to change it."""
        with self._lock:
            place = self._open.get(id_)
            if place is not None:
                place.use(self._clock())
            return None if place is None else place.session

    def leave(self, id_: str) -> None:
        """Its tab is closed, or shows another page: unless it comes back, the session is closed."""
        with self._lock:
            place = self._open.get(id_)
            if place is not None:
                place.left = self._clock()

    def count(self) -> int:
        with self._lock:
            return len(self._open)

    def close(self, id_: str) -> None:
        with self._lock:
            place = self._open.pop(id_, None)
        if place is not None:
            place.session.close()

    def close_idle(self) -> None:
        with self._lock:
            now = self._clock()
            for place in self._open.values():
                if place.session.is_busy:
                    place.used = now
            idle = [id_ for id_, place in self._open.items() if place.is_idle(now, self._idle_s)]
        for id_ in idle:
            self.close(id_)

    def close_all(self) -> None:
        """Close every session at the same time, also those that are being opened; no more can be opened.

        Returns after CLOSE_S at the latest: a session that takes longer ends with the process.
        """
        deadline = time.monotonic() + CLOSE_S
        with self._lock:
            self._is_closed = True
            closing = [threading.Thread(target=self.close, args=(id_,), daemon=True) for id_ in self._open]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(deadline - time.monotonic(), 0))
        with self._lock:
            self._lock.wait_for(lambda: self._opening == 0, max(deadline - time.monotonic(), 0))
