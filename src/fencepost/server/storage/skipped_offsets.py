"""Offsets that are missing from a log are skipped, so that none of them is handed out again for another record.

An empty batch with the last of these offsets is appended to the segment before them, as the cleaner leaves one at the
end of a segment. Readers pass over it.
"""

from __future__ import annotations

import os

from fencepost.protocol.batch import CHECKED_AT, CHECKED_HEADER, MAGIC, PREFIX_BYTES, UNCHECKED_HEADER
from fencepost.protocol.crc import crc32c
from fencepost.server.storage.cuts import keep_cut
from fencepost.server.storage.heads import BadBatch
from fencepost.server.storage.missing import Gap
from fencepost.server.storage.segment import Segment

_NO_LEADER_EPOCH = -1


def encode_filler(last_offset: int) -> bytes:
    """A batch without records that takes up one offset."""
    checked = CHECKED_HEADER.pack(0, 0, -1, -1, -1, -1, -1, 0)
    length = CHECKED_AT + len(checked) - PREFIX_BYTES
    return UNCHECKED_HEADER.pack(last_offset, length, _NO_LEADER_EPOCH, MAGIC, crc32c(checked)) + checked


def skip_to(segment: Segment, position: int, next_offset: int) -> None:
    """End the segment at `position` with an empty batch before `next_offset`; it is on disk afterwards.

    Raises OSError, and then the segment has at worst lost what was behind `position`.
    """
    filler = encode_filler(next_offset - 1)
    fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, position)
        if os.pwrite(fd, filler, position) != len(filler):
            raise OSError(f"short write to {segment.path}")
        os.fsync(fd)
    finally:
        os.close(fd)
    segment.size = position + len(filler)


def skip_gap(log: str, gap: Gap) -> str:
    """Let the segment end where the next one begins. Return a text that says where its damaged end was kept."""
    kept = ""
    if gap.position < gap.segment.size:
        kept = keep_cut(log, gap.segment, BadBatch(gap.position, "no whole batch"), gap.end_offset, ())
        gap.segment.close_file()
    skip_to(gap.segment, gap.position, gap.next_offset)
    return kept
