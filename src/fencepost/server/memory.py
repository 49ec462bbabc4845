"""Settings of the process's memory that a broker wants and Python does not choose."""

from __future__ import annotations

import gc
from time import monotonic

from fencepost.malloc import keep_freed

KEPT_BYTES = 128 << 20
SHORTEST_INTERVAL_S = 10.0


def tune() -> None:
    """Called once, when everything is loaded.

    With requests of 1 KiB records, giving memory back and asking for it again was half of the broker's time. And
    requests leave next to no cycles behind, so that looking for them as often as Python does is a tenth of the time,
    and lost: `collect` does it now and then instead.
    """
    gc.freeze()
    gc.disable()
    keep_freed(KEPT_BYTES)


def collect() -> float:
    """Look for cycles; return how many seconds later to do so again: this takes a thousandth of the time at most."""
    began = monotonic()
    gc.collect()
    return max(SHORTEST_INTERVAL_S, 1000 * (monotonic() - began))
