"""Settings of the process's memory that a broker wants and Python does not choose."""

from __future__ import annotations

import ctypes
import gc
from time import monotonic

# The names of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
KEPT_BYTES = 128 << 20
SHORTEST_INTERVAL_S = 10.0


def tune() -> None:
    """Called once, when everything is loaded.

    A large request passes through several buffers of its size. glibc gives each back to the kernel and asks for
    it again, which costs more page faults than work: with 1 KiB records, half of the broker's time. So up to
    `KEPT_BYTES` are kept. And requests leave next to no cycles behind, so that looking for them as often as Python
    does is a tenth of the time, and lost: `collect` does it now and then instead.
    """
    gc.freeze()
    gc.disable()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # Not glibc: its malloc has ways of its own.
    mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def collect() -> float:
    """Look for cycles; return how many seconds later to do so again: this takes a thousandth of the time at most."""
    began = monotonic()
    gc.collect()
    return max(SHORTEST_INTERVAL_S, 1000 * (monotonic() - began))
