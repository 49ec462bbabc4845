"""A window of the log of one partition, as it was read, and where windows begin and end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.tail.outcomes import NOTHING_IS_STABLE, AbortedSince, LogBatch, MarkerIndex
from fencepost.protocol.batch import BatchHeader, Buffer


class ReadBatch(NamedTuple):
    batch: LogBatch
    content: Buffer

    @property
    def header(self) -> BatchHeader:
        return self.batch.header


class UnreadableOffsets(NamedTuple):
    """Offsets that cannot be read."""

    first_offset: int
    last_offset: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    where: NamedPartition
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    # The place that was asked for.
    at_offset: int
    # The offsets of the window. Batches are read whole, so they may begin before and end after it.
    first_offset: int
    end_offset: int
    batches: tuple[ReadBatch, ...] = ()
    damages: tuple[UnreadableOffsets, ...] = ()
    # The aborted index of the batches below `stable_end`.
    aborted: tuple[AbortedSince, ...] = ()
    stable_end: int = NOTHING_IS_STABLE
    # Markers behind the window, and whether they are all that there are.
    markers_ahead: tuple[LogBatch, ...] = ()
    has_all_markers: bool = True
    # The first offset of each open transaction, by producer id; None if the leader did not say.
    open_since: Mapping[int, int] | None = None
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    # Why the window is not where it was asked for.
    remark: str = ""
    problems: tuple[str, ...] = ()


def is_open(header: BatchHeader, open_since: Mapping[int, int]) -> bool:
    """Whether the transaction of a batch without a marker is open, by what the leader says of its producer."""
    return 0 <= open_since.get(header.producer_id, -1) <= header.base_offset


def undecided_producers(batches: Sequence[LogBatch], stable_end: int, open_since: Mapping[int, int] | None) -> set[int]:
    """The producers whose transactions have ended behind the window, or may have."""
    markers = MarkerIndex(batches)
    return {
        header.producer_id
        for header, _ in batches
        if header.is_transactional
        and not header.is_control
        and header.last_offset >= stable_end
        and markers.end_of(header) is None
        and (open_since is None or not is_open(header, open_since))
    }


def window_end(batches: Iterable[BatchHeader], first: int, count: int, at_most: int) -> int:
    """The end of the window that begins at `first` and has this many records, or as many as there are."""
    left = count
    for header in batches:
        there = records_from(header, first)
        if there >= left:
            # Of a batch that compaction made sparse, the window may have fewer records.
            end = max(header.base_offset, first) + left if there > left else header.last_offset + 1
            return min(end, at_most)
        left -= there
    return at_most


def window_start(batches: Sequence[BatchHeader], before: int, count: int, at_least: int) -> int:
    """The first offset of the window that ends at `before` and has this many records, or as many as there are."""
    left = count
    for header in reversed(batches):
        last = min(header.last_offset, before - 1)
        there = min(header.record_count, last - header.base_offset + 1)
        if there >= left:
            return max(last - left + 1 if there > left else header.base_offset, at_least)
        left -= there
    return at_least


def records_from(header: BatchHeader, first: int) -> int:
    """The records of a batch from `first` on; at most so many if compaction has removed some."""
    return min(header.record_count, header.last_offset - max(header.base_offset, first) + 1)
