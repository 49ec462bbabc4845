"""Where the time of an attempt goes: the micro-batch works, or it waits for brokers. They need different remedies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class TimeUsed:
    """The time since it was made. Several threads may wait at once.

    stalled_ms: how long tasks waited for acknowledgements.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began_s = self._changed_s = clock()
        self._waited_s = 0.0
        self._waiting = 0  # Threads.
        self.stalled_ms: Callable[[], int] = lambda: 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a request to a broker."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def _change(self, waiting: int) -> None:
        with self._lock:
            now_s = self._clock()
            if self._waiting:
                self._waited_s += now_s - self._changed_s
            self._changed_s = now_s
            self._waiting += waiting

    @property
    def took_ms(self) -> int:
        return round((self._clock() - self._began_s) * 1000)

    @property
    def waited_ms(self) -> int:
        """For brokers. A wait that has not ended counts."""
        self._change(0)
        return min(round(self._waited_s * 1000) + self.stalled_ms(), self.took_ms)


def are_brokers_slow(timeout_ms: int, took_ms: int, waited_ms: int) -> bool:
    """Are brokers to blame if the time is too long? Not if the micro-batch was too slow without their answers."""
    return took_ms - waited_ms < min(waited_ms, timeout_ms)


def remedy(timeout_ms: int, took_ms: int, waited_ms: int) -> str:
    """What helps a micro-batch that takes too long for its transaction."""
    if are_brokers_slow(timeout_ms, took_ms, waited_ms):
        return "find out which broker, or which executor that was writing, stalled or could not be reached"
    return (
        "raise transaction.timeout.ms (up to the broker's transaction.max.timeout.ms), or make micro-batches smaller "
        "(maxOffsetsPerTrigger)"
    )


class Loss(NamedTuple):
    """The time of an attempt that was broken."""

    timeout_ms: int
    took_ms: int
    waited_ms: int

    @property
    def is_timeout(self) -> bool:
        return self.took_ms >= self.timeout_ms

    @property
    def is_too_slow(self) -> bool:
        """Would the next attempt take as long?"""
        return self.is_timeout and not are_brokers_slow(*self)

    def describe(self, reason: str, too_slow_in_a_row: int) -> str:
        """A message for the user about a timeout."""
        again = " twice in a row, the last time" if too_slow_in_a_row > 1 else ""
        return (
            f"the transaction was lost{again} after {self.took_ms} ms, longer than transaction.timeout.ms="
            f"{self.timeout_ms}; for {self.waited_ms} ms of them it waited for brokers: {reason}\n\n"
            f"hint: {remedy(*self)}"
        )
