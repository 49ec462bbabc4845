"""Retention: which of a log's oldest segments are too old, or too much.

Follows Kafka's UnifiedLog.deleteOldSegments: whole segments are deleted, the oldest first, if their greatest timestamp
is older than `retention.ms` or while more than `retention.bytes` would remain without them. The active segment is
deleted too when it is old enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.machines.log.interface import LogSegment


class Retention(NamedTuple):
    """-1 means no limit."""

    retention_ms: int = -1
    retention_bytes: int = -1


def first_kept_offset(
    segments: Sequence[LogSegment], end_offset: int, limit_offset: int, retention: Retention, now_ms: int
) -> int:
    """Where a log of these segments should begin: with one of them, or at its end; at most at `limit_offset`."""
    excess = sum(segment.size for segment in segments) - retention.retention_bytes
    kept = segments[0].base_offset
    for segment, following in zip(segments, [*(s.base_offset for s in segments[1:]), end_offset], strict=True):
        excess -= segment.size
        is_too_much = retention.retention_bytes >= 0 and excess >= 0
        if following > limit_offset or segment.size == 0 or not (is_too_much or _is_old(segment, retention, now_ms)):
            break
        kept = following
    return kept


def _is_old(segment: LogSegment, retention: Retention, now_ms: int) -> bool:
    return retention.retention_ms >= 0 and now_ms - segment.largest_timestamp() > retention.retention_ms
