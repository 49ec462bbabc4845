"""The snapshots of a partition's producer state, `%020d.snapshot`, named by the offset to replay from.

The partition defines their content. A snapshot only shortens a replay, so one that cannot be written is left out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from fencepost.server.storage.checkpoints import read_file, replace_file
from fencepost.server.storage.open_files import At

KEPT_SNAPSHOTS = 2


class SnapshotFiles:
    """`offsets` are those of the snapshots on disk, in order."""

    __slots__ = ("_at", "_directory", "_offsets")

    def __init__(self, directory: str, at: At, offsets: list[int]) -> None:
        self._directory = directory
        self._at = at
        self._offsets = offsets

    def has(self, offset: int, snapshot: bytes) -> bool:
        try:
            return offset in self._offsets and read_file(self._path(offset)) == snapshot
        except OSError:
            return False

    def save(self, offset: int, snapshot: bytes, recovery_point: int) -> bool:
        """Write the snapshot and remove old ones; return whether it was written."""
        try:
            at_half = partial(self._at, "snapshot.write")
            replace_file(self._path(offset), snapshot, durable=False, before=at_half)
        except OSError:
            return False
        if offset not in self._offsets:
            self._offsets.append(offset)
        self._remove_old(recovery_point)
        return True

    def newest_offset(self) -> int:
        return self._offsets[-1] if self._offsets else -1

    def newest(self) -> tuple[int, bytes] | None:
        while self._offsets:
            offset = self._offsets[-1]
            snapshot = read_file(self._path(offset))
            if snapshot is not None:
                return offset, snapshot
            self._offsets.pop()
        return None

    def paths(self) -> list[str]:
        return [self._path(offset) for offset in self._offsets]

    def _remove_old(self, recovery_point: int) -> None:
        """Keep the newest snapshot, and the snapshot that recovery would use after a power loss."""
        kept = set(self._offsets[-KEPT_SNAPSHOTS:])
        kept.update([offset for offset in self._offsets if offset <= recovery_point][-1:])
        for offset in self._offsets:
            if offset not in kept:
                with suppress(OSError):
                    os.unlink(self._path(offset))
        self._offsets = sorted(kept)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}.snapshot"
