"""How far batches of a log are whole, and which one is damaged, in words that name its file."""

from __future__ import annotations

import struct

from fencepost.machines.log.interface import CorruptLog, Log
from fencepost.protocol.batch import HEADER_BYTES, LEAST_LENGTH, MAGIC, PREFIX_BYTES, decode_header

_STEP = struct.Struct(">qi4xb")  # Base offset, length and magic.


def find_damage(log: Log, offset: int) -> CorruptLog:
    """The damage that a reader met at `offset` or behind it. Only the log knows its files, so it reads them again."""
    try:
        for _ in log.scan(offset):
            pass
    except CorruptLog as found:
        return found
    return CorruptLog(f"the batches from offset {offset} on are damaged")


def whole_part(records: bytes) -> tuple[int, int]:
    """The size of the batches up to the first one with a damaged header, and the offset after them."""
    pos = last = 0
    before = -1
    size = len(records)
    while size - pos >= HEADER_BYTES:
        base_offset, length, magic = _STEP.unpack_from(records, pos)
        end = pos + PREFIX_BYTES + length
        if length < LEAST_LENGTH or end > size or magic != MAGIC or base_offset <= before:
            break
        before = base_offset
        last, pos = pos, end
    return pos, decode_header(records, last).last_offset + 1 if pos else 0
