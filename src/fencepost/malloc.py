"""How much freed memory glibc keeps in the process instead of returning it to the kernel."""

from __future__ import annotations

import ctypes

# The names of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed(limit_bytes: int) -> None:
    """Keep up to so many bytes for later allocations.

    Data passes through several buffers of its size. By default, glibc returns each of them to the kernel and asks for
    it again, and the page faults take longer than the work.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # Not glibc.
    mallopt(_M_MMAP_THRESHOLD, limit_bytes // 2)
    mallopt(_M_TRIM_THRESHOLD, limit_bytes)
