"""Warns while a micro-batch uses up the time of its transaction."""

from __future__ import annotations

import logging
import threading

from fencepost.spark.driver.progress import name_of
from fencepost.spark.driver.time_used import TimeUsed, remedy

log = logging.getLogger("fencepost.spark")

WARN_AT = (0.5, 0.8)


class TimeoutAlarm:
    """For the length of a `with` block."""

    def __init__(self, batch_id: int, timeout_ms: int, used: TimeUsed) -> None:
        self._timers = [
            threading.Timer(timeout_ms * share / 1000, self._warn, (batch_id, timeout_ms, share, used))
            for share in WARN_AT
        ]

    def __enter__(self) -> TimeoutAlarm:
        for timer in self._timers:
            timer.daemon = True
            timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    @staticmethod
    def _warn(batch_id: int, timeout_ms: int, share: float, used: TimeUsed) -> None:
        took_ms, waited_ms = used.took_ms, used.waited_ms
        log.warning(
            "%s has used %d %% of transaction.timeout.ms=%d, and waited %d ms for brokers; at 100 %% the broker aborts "
            "it\n\nhint: %s",
            name_of(batch_id),
            share * 100,
            timeout_ms,
            waited_ms,
            remedy(timeout_ms, took_ms, waited_ms),
        )
