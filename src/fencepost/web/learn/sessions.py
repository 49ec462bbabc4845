"""The sessions that are open: a bounded number, each closed when it was not used for a while.

A page that only watches a session does not use it, so a forgotten tab keeps no broker running.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

MOST = 6
IDLE_S = 600.0
CLOSE_S = 4.0


class EmbeddedSession(Protocol):
    @property
    def is_busy(self) -> bool:
        """Whether it does something that was asked for, and must not be taken for idle."""

    def close(self) -> None: ...


T = TypeVar("T", bound=EmbeddedSession)


class TooMany(Exception):
    """As many sessions as allowed are open, and all of them are in use."""


class Sessions(Generic[T]):
    """Sessions by their ids, which cannot be guessed. The owner calls `close_idle` from time to time."""

    def __init__(self, most: int = MOST, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Condition()
        self._is_closed = False
        self._opening = 0
        self._open: dict[str, T] = {}
        self._used: dict[str, float] = {}

    def open(self, make: Callable[[], T]) -> tuple[str, T]:
        """A new session and its id. Raises TooMany."""
        self.close_idle()
        with self._lock:
            taken = len(self._open) + self._opening
            if self._is_closed or taken >= self._most:
                raise TooMany(
                    f"{taken} sessions are open, and at most {self._most} may be\n\n"
                    f"hint: close one, or wait: a session that is not used for {self._idle_s / 60:g} minutes is closed"
                )
            self._opening += 1
        id_ = secrets.token_urlsafe(12)
        try:
            session = make()
            with self._lock:
                is_late = self._is_closed
                if not is_late:
                    self._open[id_] = session
                    self._used[id_] = self._clock()
            if is_late:
                session.close()
        finally:
            with self._lock:
                self._opening -= 1
                self._lock.notify_all()
        return id_, session

    def find(self, id_: str) -> T | None:
        """The session, to look at it."""
        with self._lock:
            return self._open.get(id_)

    def use(self, id_: str) -> T | None:
        """The session, to change it."""
        with self._lock:
            if id_ in self._open:
                self._used[id_] = self._clock()
            return self._open.get(id_)

    def count(self) -> int:
        with self._lock:
            return len(self._open)

    def close(self, id_: str) -> None:
        with self._lock:
            session = self._open.pop(id_, None)
            self._used.pop(id_, None)
        if session is not None:
            session.close()

    def close_idle(self) -> None:
        with self._lock:
            now = self._clock()
            self._used.update({id_: now for id_, session in self._open.items() if session.is_busy})
            idle = [id_ for id_, used in self._used.items() if used < now - self._idle_s]
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
