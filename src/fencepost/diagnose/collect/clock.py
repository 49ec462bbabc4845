"""The time at which a snapshot is taken."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000
