"""A setting of the process's memory that Python does not choose: how much of what was freed stays with the process."""

from __future__ import annotations

import ctypes

# The names of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed(limit_bytes: int) -> None:
    """Keep up to so much for what comes next.

    Data passes through several buffers of its size. glibc gives each back to the kernel and asks for it again, which
    costs more page faults than work.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # Not glibc: its malloc has ways of its own.
    mallopt(_M_MMAP_THRESHOLD, limit_bytes // 2)
    mallopt(_M_TRIM_THRESHOLD, limit_bytes)
