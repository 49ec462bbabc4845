"""Which logs have files: a note that outlives the process, and not the machine.

    logs-of-this-boot        the boot of the machine; then the name and the topic id of one log per line

A log is noted once, after its first segment was made and before the first append. A start in the same boot of the
machine notices if a noted log has no files. The note is not synced, so it proves nothing after another boot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from fencepost.server.storage.checkpoints import read_file, replace_file

BEGUN_NAME = "logs-of-this-boot"

# Lines of deleted logs. With more of them than this, and than logs, the file is written again without them.
_MOST_OLD_LINES = 1000


class BegunLogs:
    """Read when the folder is opened; only `add` and `begin_anew` change the file.

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
