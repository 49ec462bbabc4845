"""The limit of open files of this process, which also limits its connections and is often too low."""

from __future__ import annotations

import resource

# For 256 segments, 256 mappings of them (`server/storage/`) and a few others.
RESERVED_FILES = 640


def share_of_open_files(part: int, most: int) -> int:
    """One `part`-th of the files that this process may have open, `most` at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // part)


def room_for_connections(wanted: int) -> int:
    """Raise the limit for `wanted` connections and some files; return how many connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < need:
        more = need if hard == resource.RLIM_INFINITY else min(need, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        except (OSError, ValueError):
            pass
        if soft < need:
            return max(soft - min(RESERVED_FILES, soft // 4), 1)
    return wanted
