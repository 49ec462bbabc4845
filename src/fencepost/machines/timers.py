"""Actions to run later, in the order of their deadlines. The shell owns the clock and calls `advance`."""

from __future__ import annotations

import heapq
from collections.abc import Callable

SWEEP_AT = 1024


class Timer:
    __slots__ = ("action", "deadline_ms")

    def __init__(self, deadline_ms: int, action: Callable[[int], None]) -> None:
        self.deadline_ms = deadline_ms
        self.action: Callable[[int], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._sweep_at = SWEEP_AT
        # Called with a new earliest deadline, so that the shell wakes up in time.
        self.on_earlier: Callable[[int], None] | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, deadline_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` once, at or after `deadline_ms`."""
        timer = Timer(deadline_ms, action)
        self._count += 1
        is_first = not self._heap or deadline_ms < self._heap[0][0]
        heapq.heappush(self._heap, (deadline_ms, self._count, timer))
        if len(self._heap) > self._sweep_at:
            self._sweep()
        if is_first and self.on_earlier is not None:
            self.on_earlier(deadline_ms)
        return timer

    def every(self, interval_ms: int, now_ms: int, action: Callable[[int], None]) -> None:
        def run(at_ms: int) -> None:
            self.at(at_ms + interval_ms, run)  # Before the action, so that one that raises runs again.
            action(at_ms)

        self.at(now_ms + interval_ms, run)

    def _sweep(self) -> None:
        """Drop cancelled timers, which would otherwise stay until their deadlines."""
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._sweep_at = max(SWEEP_AT, 2 * len(self._heap))

    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def advance(self, now_ms: int) -> None:
        """Run all actions that are due, including those that become due meanwhile."""
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action(now_ms)
