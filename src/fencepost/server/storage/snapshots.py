"""The snapshots of a partition's producer state, `%020d.snapshot`, named by the offset to replay from.

The partition defines their content. Beside a snapshot, a file `.txncheck` describes the aborted-transaction index below
it: see `aborted_index.py`. A snapshot only shortens a replay, so one that cannot be written is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from fencepost.server.storage.checkpoints import read_file, replace_file
from fencepost.server.storage.open_files import At

KEPT_SNAPSHOTS = 2
SNAPSHOT_SUFFIXES = ("snapshot", "txncheck")

# Describes the index below an offset; empty if nothing was aborted there. May raise OSError.
TxnCheck = Callable[[int], bytes]


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

    def save(self, offset: int, snapshot: bytes, txn_check: TxnCheck, recovery_point: int) -> bool:
        """Write the snapshot and remove old ones; return whether it was written."""
        try:
            self._write_txn_check(offset, txn_check)
            at_half = partial(self._at, "snapshot.write")
            replace_file(self._path(offset), snapshot, durable=False, before=at_half)
        except OSError:
            return False
        if offset not in self._offsets:
            self._offsets.append(offset)
        self._remove_old(recovery_point)
        return True

    def check_txns_again(self, txn_check: TxnCheck) -> None:
        """The aborted-transaction index below the snapshots was replaced. Raises OSError."""
        for offset in self._offsets:
            self._write_txn_check(offset, txn_check)

    def _write_txn_check(self, offset: int, txn_check: TxnCheck) -> None:
        path = self._path(offset, "txncheck")
        if content := txn_check(offset):
            replace_file(path, content, durable=False)
        else:
            with suppress(FileNotFoundError):
                os.unlink(path)

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
        """Of the snapshots, and of the files beside them that there are."""
        beside = [self._path(offset, "txncheck") for offset in self._offsets]
        return [self._path(offset) for offset in self._offsets] + [path for path in beside if os.path.exists(path)]

    def _remove_old(self, recovery_point: int) -> None:
        """Keep the newest snapshot, and the snapshot that recovery would use after a power loss."""
        kept = set(self._offsets[-KEPT_SNAPSHOTS:])
        kept.update([offset for offset in self._offsets if offset <= recovery_point][-1:])
        for offset in self._offsets:
            if offset not in kept:
                for suffix in SNAPSHOT_SUFFIXES:
                    with suppress(OSError):
                        os.unlink(self._path(offset, suffix))
        self._offsets = sorted(kept)

    def _path(self, offset: int, suffix: str = "snapshot") -> str:
        return f"{self._directory}/{offset:020d}.{suffix}"
