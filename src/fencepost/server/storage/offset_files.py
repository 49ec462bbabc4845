"""The files of a data folder that keep one offset for each log, under the log's name.

    recovery-point-offset-checkpoint     RecoveryPoints: how far a log is on disk together with its indexes
    log-start-offset-checkpoint          OffsetsFile: where a log begins, if that is within a segment
    cleaner-offset-checkpoint            OffsetsFile: how far a compacted log is clean

A topic may be deleted and created again under the same name. `forget` removes an entry from memory and, when the file
is next written, from the file. `forget_for_good` removes it from the disk, and must return before a new log gets the
name: after a power loss, the entry would hide the beginning of the new log, or vouch for batches that were not synced.
An entry of 0 does neither, so it counts as none: most logs of a folder may be empty.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from fencepost.server.storage.checkpoints import (
    RECOVERY_POINTS_NAME,
    decode_offsets,
    encode_offsets,
    read_file,
    replace_file,
)


def _read(path: str) -> tuple[dict[str, int], bool]:
    """The offsets, and whether there is a file that does not have the form of one."""
    content = read_file(path)
    offsets = decode_offsets(content)
    return {name: offset for name, offset in (offsets or {}).items() if offset}, content is not None and offsets is None


class OffsetsFile:
    """Written again with every change. `is_ignored`: what the last process left is not used."""

    def __init__(self, path: str, is_ignored: bool = False) -> None:
        self._path = path
        self._offsets, self.is_damaged = ({}, False) if is_ignored else _read(path)
        self._in_file = set(self._offsets)  # The names that a start may find there, also after a power loss.

    def get(self, name: str) -> int:
        return self._offsets.get(name, 0)

    def set(self, name: str, offset: int, durable: bool = False) -> None:
        """Raises OSError, and then there is no change."""
        offsets = {**self._offsets, name: offset}
        self._in_file.add(name)
        replace_file(self._path, encode_offsets(offsets), durable=durable)
        self._offsets = offsets

    def forget(self, name: str) -> None:
        if self._offsets.pop(name, None) is not None:
            with suppress(OSError):
                replace_file(self._path, encode_offsets(self._offsets), durable=False)

    def forget_for_good(self, name: str) -> None:
        """Raises OSError, and then the name may still be in the file."""
        self.forget(name)
        if name in self._in_file:
            self.replace()

    def replace(self) -> None:
        """Have the file say what the memory does, durably. Raises OSError."""
        replace_file(self._path, encode_offsets(self._offsets), durable=True)
        self._in_file = set(self._offsets)


class RecoveryPoints:
    """One thread changes the points. Another one may write the file, and holds the lock meanwhile.

    `is_synced`: whether the file, as it is, is on disk.
    """

    def __init__(self, folder: str, is_synced: bool = False) -> None:
        self._path = f"{folder}/{RECOVERY_POINTS_NAME}"
        self._points, self.is_damaged = _read(self._path)
        self._in_file = set(self._points)  # The names that a start may find there, also after a power loss.
        self._synced = dict(self._points) if is_synced else None  # None: it is not known what is on disk.
        self._lock = Lock()
        self.is_closed = False

    def get(self, name: str) -> int:
        return self._points.get(name, 0)

    def names(self) -> list[str]:
        """Of the logs with records."""
        return list(self._points)

    def set(self, name: str, offset: int) -> None:
        if offset:
            self._points[name] = offset
        else:
            self.forget(name)

    def forget(self, name: str) -> None:
        self._points.pop(name, None)

    def forget_for_good(self, name: str) -> None:
        """Raises OSError, and then the name may still be in the file."""
        self.forget(name)
        with self._lock:
            if name in self._in_file:
                self._write(self._points)

    def store(self, more_points: Callable[[], dict[str, int]]) -> None:
        """Write the file, from any thread, with the points that `more_points` returns added. Raises OSError."""
        with self._lock:
            if not self.is_closed:
                self._write({**self._points, **more_points()})

    def store_last(self) -> None:
        """Write the file; a `store` of another thread that comes later does nothing. Raises OSError."""
        with self._lock:
            self.is_closed = True
            if self._points != self._synced:
                self._write(self._points)

    def _write(self, points: dict[str, int]) -> None:
        self._in_file |= points.keys()
        self._synced = None
        replace_file(self._path, encode_offsets(points), durable=True)
        self._in_file = set(points)
        self._synced = dict(points)
