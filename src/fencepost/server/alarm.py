"""Runs the timers of one node when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencepost.machines.timers import Timers


class Alarm:
    """`failed` gets what a timer raised."""

    def __init__(self, now_ms: Callable[[], int], failed: Callable[[Exception], None]) -> None:
        self._timers = Timers()
        self._now_ms = now_ms
        self._failed = failed
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self.is_paused = False

    def watch(self, timers: Timers) -> None:
        """Run these timers from now on, and not those of before."""
        self._timers.on_earlier = None
        self._timers = timers
        timers.on_earlier = self._set

    def after_work(self) -> None:
        """Run the timers that are due. The alarm is for a node that has nothing else to do."""
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._now_ms():
            self.ring()

    def ring(self) -> None:
        """Run the timers that are due, and set the alarm for the next one."""
        self.cancel()
        if self.is_paused:
            return
        try:
            self._timers.advance(self._now_ms())
        except Exception as e:
            self._failed(e)
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is not None:
            self._set(deadline_ms)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, deadline_ms: int) -> None:
        if self._handle is not None:
            if self._due_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._due_ms = deadline_ms
        delay_s = max(deadline_ms - self._now_ms(), 0) / 1000
        self._handle = asyncio.get_running_loop().call_later(delay_s, self.ring)
