"""Which batch of a log is damaged, in words that name its file."""

from __future__ import annotations

from fencepost.machines.log.interface import CorruptLog, Log


def find_damage(log: Log, offset: int) -> CorruptLog:
    """The damage that a reader met at `offset` or behind it. Only the log knows its files, so it reads them again."""
    try:
        for _ in log.scan(offset):
            pass
    except CorruptLog as found:
        return found
    return CorruptLog(f"the batches from offset {offset} on are damaged")
