"""The few fields of a v2 batch header that storage needs, and the walk from batch to batch.

Everything else in a batch is opaque here. The walk trusts nothing: bytes that are not a batch raise `BadBatch` with
their position, which is the end of the log for recovery, and damage for a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fencepost.protocol.batch import CHECKED_AT, HEADER_BYTES, MAGIC, PREFIX_BYTES, WALKED_HEADER
from fencepost.protocol.crc import crc32c

Read = Callable[[int, int], bytes]
# position, size_bytes, base_offset, last_offset, max_timestamp, attributes, buf, position of the batch in buf
Placed = tuple[int, int, int, int, int, int, bytes, int]


class BadBatch(Exception):
    """There is no complete, valid batch at `position`. `is_whole`: there are as many bytes as its header says."""

    def __init__(self, position: int, why: str, is_whole: bool = False) -> None:
        super().__init__(f"position {position}: {why}")
        self.position = position
        self.why = why
        self.is_whole = is_whole


def walk(read: Read, position: int, end: int, chunk_bytes: int, check_crc: bool = False) -> Iterator[Placed]:
    """Every batch from `position` to `end`. `read(position, size_bytes)` may return fewer bytes at the end."""
    buf = b""
    view = memoryview(buf)
    start = position
    last_offset = -1
    unpack_from = WALKED_HEADER.unpack_from
    while position < end:
        at = position - start
        if len(buf) - at < HEADER_BYTES:
            buf = read(position, min(chunk_bytes, end - position))
            view = memoryview(buf)
            start = position
            at = 0
            if len(buf) < HEADER_BYTES:
                raise BadBatch(position, f"{len(buf)} bytes are too few for a batch header")
        base_offset, length, magic, crc, attributes, delta, max_timestamp = unpack_from(buf, at)
        size = length + PREFIX_BYTES
        if magic != MAGIC:
            raise BadBatch(position, f"magic is {magic}, expected {MAGIC}")
        if size < HEADER_BYTES or delta < 0 or base_offset < 0:
            raise BadBatch(position, f"length {length}, base offset {base_offset}, last offset delta {delta}")
        if size > end - position:
            raise BadBatch(position, f"the batch has {size} bytes, the file {end - position} more")
        if base_offset <= last_offset:
            why = f"base offset is {base_offset}, the batch before ends at offset {last_offset}"
            raise BadBatch(position, why, is_whole=True)
        if check_crc:
            if at + size <= len(buf):
                found = crc32c(view[at + CHECKED_AT : at + size])
            else:
                found = _crc_of_long_batch(read, position + CHECKED_AT, position + size, chunk_bytes)
            if found != crc:
                why = f"crc is {found:#010x}, the header says {crc:#010x}"
                raise BadBatch(position, why, is_whole=True)
        last_offset = base_offset + delta
        yield position, size, base_offset, last_offset, max_timestamp, attributes, buf, at
        position += size


def _crc_of_long_batch(read: Read, position: int, end: int, chunk_bytes: int) -> int:
    """Reads in pieces, because a torn header may claim two gigabytes."""
    crc = 0
    while position < end:
        piece = read(position, min(chunk_bytes, end - position))
        if not piece:
            raise BadBatch(position, "the file ended within a batch")
        crc = crc32c(piece, crc)
        position += len(piece)
    return crc
