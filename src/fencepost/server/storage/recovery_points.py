"""How far every log is on disk together with its indexes: `recovery-point-offset-checkpoint`.

The file goes by names, and a topic may be deleted and made again under its name. So a name must be out of the file
before a new log may have it: after a power loss, the point of the old one would vouch for what nobody synced.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from fencepost.server.storage.checkpoints import (
    RECOVERY_POINTS_NAME,
    decode_offsets,
    encode_offsets,
    read_file,
    replace_file,
)


class RecoveryPoints:
    """The points are one thread's. Another one may write the file, and holds the lock while it does."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{RECOVERY_POINTS_NAME}"
        self._points = decode_offsets(read_file(self._path))
        self._in_file = set(self._points)  # The names that may be there.
        self._lock = Lock()
        self.is_closed = False

    def get(self, name: str) -> int | None:
        return self._points.get(name)

    def set(self, name: str, offset: int) -> None:
        self._points[name] = offset

    def forget(self, name: str) -> None:
        """For now; the file hears of it when it is next written."""
        self._points.pop(name, None)

    def forget_for_good(self, name: str) -> None:
        """Raises OSError, and then the name may be in the file still."""
        self.forget(name)
        with self._lock:
            if name in self._in_file:
                self._write(dict(self._points))

    def store(self, with_points: Callable[[], dict[str, int]]) -> None:
        """Write the file, from any thread. `with_points` says then what else is to be in it. Raises OSError."""
        with self._lock:
            if not self.is_closed:
                self._write({**self._points, **with_points()})

    def store_last(self) -> None:
        """What another thread still wants to write comes too late. Raises OSError."""
        with self._lock:
            self.is_closed = True
            self._write(self._points)

    def _write(self, points: dict[str, int]) -> None:
        self._in_file |= points.keys()
        replace_file(self._path, encode_offsets(points), durable=True)
        self._in_file = set(points)
