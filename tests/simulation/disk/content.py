"""What is on the disk, and what a power loss leaves of it.

A file knows its synced content and every write since; a directory knows the same about its names. All that was synced
outlives a power loss. Of its later writes a file keeps all, none or the first few, of which the last may be torn at any
byte and followed by zeros. A directory keeps the first few of its changes.

Syncing a file does not sync its name: as in POSIX, that takes a sync of its directory.
"""

from __future__ import annotations

import errno
import random

ROOT = "/data"


class File:
    """`changes` are those since the last sync: (position, bytes), or (size, None) for a truncation."""

    __slots__ = ("changes", "data", "durable", "mtime_ms")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = data
        self.changes: list[tuple[int, bytes | None]] = []
        self.mtime_ms = 0

    def change(self, position: int, data: bytes | None) -> None:
        self.changes.append((position, data))
        _change(self.data, position, data)

    def sync(self) -> None:
        if self.changes:
            self.durable = bytes(self.data)
            self.changes = []

    def copy(self) -> File:
        return File(bytes(self.data))

    def after_power_loss(self, rng: random.Random) -> File:
        if not self.changes:
            return File(self.durable)
        fate = rng.random()
        if fate < 0.2:
            return File(bytes(self.data))
        kept = bytearray(self.durable)
        if fate < 0.4:
            return File(bytes(kept))
        count = rng.randrange(len(self.changes) + 1)
        for position, data in self.changes[:count]:
            _change(kept, position, data)
        if count < len(self.changes):
            position, torn = self.changes[count]
            if torn:
                _change(kept, position, torn[: rng.randrange(len(torn))])
        if fate > 0.9 and len(self.data) > len(kept):
            kept += bytes(rng.randint(1, len(self.data) - len(kept)))
        return File(bytes(kept))


def _change(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


Names = dict[str, "File | Directory"]


class Directory:
    """`changes` are those since the last sync: (name, None) for a removed name, (name, node) for a new one."""

    __slots__ = ("changes", "durable", "names")

    def __init__(self, names: Names | None = None) -> None:
        self.names: Names = names or {}
        self.durable = dict(self.names)
        self.changes: list[list[tuple[str, File | Directory | None]]] = []

    def change(self, *change: tuple[str, File | Directory | None]) -> None:
        self.changes.append(list(change))
        _rename(self.names, self.changes[-1])

    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.names)
            self.changes = []

    def sync_all(self) -> None:
        self.sync()
        for node in self.names.values():
            if isinstance(node, File):
                node.sync()
            else:
                node.sync_all()

    def copy(self) -> Directory:
        return Directory({name: node.copy() for name, node in self.names.items()})

    def after_power_loss(self, rng: random.Random) -> Directory:
        names = dict(self.durable)
        fate = rng.random()
        count = rng.randint(0, len(self.changes)) if fate < 0.6 else 0 if fate < 0.8 else len(self.changes)
        for change in self.changes[:count]:
            _rename(names, change)
        return Directory({name: node.after_power_loss(rng) for name, node in names.items()})


def _rename(names: Names, change: list[tuple[str, File | Directory | None]]) -> None:
    for name, node in change:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Tree:
    """The directories and files below `ROOT`, by their paths."""

    def __init__(self, root: Directory) -> None:
        self.root = root

    def find(self, path: str) -> File | Directory:
        if path == ROOT:
            return self.root
        parent, name = self.parent(path)
        found = parent.names.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return found

    def file(self, path: str) -> File:
        found = self.find(path)
        assert isinstance(found, File), path
        return found

    def directory(self, path: str) -> Directory:
        if path == ROOT:
            return self.root
        found = self.root.names.get(path[len(ROOT) + 1 :])
        if not isinstance(found, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return found

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that has the name, and the name in it."""
        parent, _, name = path.rpartition("/")
        return self.directory(parent), name
