"""The broker's settings for malloc and for the garbage collector."""

from __future__ import annotations

import gc
from time import monotonic

from fencepost.malloc import keep_freed

KEPT_BYTES = 128 << 20
SHORTEST_INTERVAL_S = 10.0


def tune() -> None:
    """Called once, when everything is loaded.

    With requests of 1 KiB records, the broker spent half of its time returning memory to the kernel and asking for it
    again. Requests leave almost no reference cycles, and Python's search for them took a tenth of the time, so
    `collect` does it rarely instead.
    """
    gc.freeze()
    gc.disable()
    keep_freed(KEPT_BYTES)


def collect() -> float:
    """Collect cycles; return how many seconds to wait, so that this takes at most a thousandth of the time."""
    began = monotonic()
    gc.collect()
    return max(SHORTEST_INTERVAL_S, 1000 * (monotonic() - began))
