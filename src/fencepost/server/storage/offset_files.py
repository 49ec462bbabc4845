"""The files of a data folder that have a line for each log, under the log's name: an offset, or that it has files.

    recovery-point-offset-checkpoint     RecoveryPoints: how far a log is on disk together with its indexes
    log-start-offset-checkpoint          OffsetsFile: where a log begins, if that is within a segment
    cleaner-offset-checkpoint            OffsetsFile: how far a compacted log is clean
    logs-of-this-boot                    BegunLogs: the boot of the machine, then the logs that have files

A topic may be deleted and created again under the same name. `forget` removes an entry from memory and, when the file
is next written, from the file. `forget_for_good` removes it from the disk, and must return before a new log gets the
name: after a power loss, the entry would hide the beginning of the new log, or vouch for batches that were not synced.
An entry of 0 does neither, so it counts as none: most logs of a folder may be empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
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


BEGUN_NAME = "logs-of-this-boot"

# Lines of deleted logs. With more of them than this, and than logs, the file is written again without them.
_MOST_OLD_LINES = 1000


class BegunLogs:
    """Which logs have files, by name and topic id: a note that outlives the process, and not the machine.

    A log is noted once, after its first segment was made and before the first append. A start in the same boot of the
    machine notices if a noted log has no files. The note is not synced, so it proves nothing after another boot.

    Read when the folder is opened; only `add` and `begin_anew` change the file.

    `boot` is the current boot. If the kernel does not say which it is, nothing is noted.
    """

    def __init__(self, folder: str, boot: str | None) -> None:
        self._path = f"{folder}/{BEGUN_NAME}"
        self._boot = boot
        lines = (read_file(self._path) or b"").decode(errors="replace").split("\n")
        # Lines in the file; 0 if the file is of another boot or lacks a line. Then it is written anew.
        self._lines = len(lines) if lines[0] == boot else 0
        self._topic_ids = _decode_entries(lines[1:]) if self._lines else {}

    def names(self) -> list[str]:
        return list(self._topic_ids)

    def has(self, name: str, topic_id: bytes) -> bool:
        return self._topic_ids.get(name) == topic_id

    def add(self, name: str, topic_id: bytes) -> None:
        if self._boot is None or self.has(name, topic_id):
            return
        self._topic_ids[name] = topic_id
        try:
            if 0 < self._lines <= 2 * len(self._topic_ids) + _MOST_OLD_LINES:
                is_whole = self._append(_encode_entry(name, topic_id))
                self._lines = self._lines + 1 if is_whole else 0
            else:
                entries = [_encode_entry(name, topic_id) for name, topic_id in self._topic_ids.items()]
                replace_file(self._path, self._boot.encode() + b"".join(entries), durable=False)
                self._lines = 1 + len(entries)
        except OSError:
            # A full disk takes no note. Until the next one, which writes all again, the loss of this log may go
            # unnoticed.
            self._lines = 0

    def keep(self, logs: Iterable[tuple[str, bytes]]) -> None:
        """The other logs are deleted: these are all that there are, with their topic ids."""
        self._topic_ids = {name: topic_id for name, topic_id in logs if self.has(name, topic_id)}

    def forget(self, name: str) -> None:
        """The log is deleted. Its line stays: no other log has its topic id."""
        self._topic_ids.pop(name, None)

    def begin_anew(self) -> None:
        """Forget the notes, because noted files may be lost, as after a power loss. Raises OSError."""
        self._topic_ids.clear()
        self._lines = 0
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _append(self, entry: bytes) -> bool:
        """Whether the disk took all of it."""
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            return os.write(fd, entry) == len(entry)
        finally:
            os.close(fd)


def _encode_entry(name: str, topic_id: bytes) -> bytes:
    """Begins with the line break, so that an entry behind one that was not written to its end is whole."""
    return f"\n{name} {topic_id.hex()}".encode()


def _decode_entries(lines: list[str]) -> dict[str, bytes]:
    found = {}
    for line in lines:
        name, _, encoded = line.partition(" ")
        with suppress(ValueError):
            topic_id = bytes.fromhex(encoded)
            if len(topic_id) == 16:
                found[name] = topic_id
    return found
