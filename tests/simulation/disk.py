"""A disk in memory under the real storage code. It loses what a real disk may lose, and kills the process in a write.

`fencepost.server.storage` runs on it unchanged, with another module in place of `os` (`mounted`). A file knows its
synced content and every write since; a directory knows the same about its names. The process can end in two ways:

    kill -9      All writes stay, because the page cache outlives the process. The last write may be torn at any byte.
    power loss   All that was synced stays. Of its later writes a file keeps all, none or the first few, of which the
                 last may be torn at any byte and followed by zeros. A directory keeps the first few of its changes.

Syncing a file does not sync its name: as in POSIX, that takes a sync of its directory.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from fencepost.protocol.batch import Buffer
from fencepost.server.storage import (
    begun_logs,
    checkpoints,
    cuts,
    deleting,
    file_log,
    folder,
    group_sync,
    identity,
    index_file,
    last_stop,
    log_files,
    losses,
    missing,
    open_files,
    recovery,
    rewriting,
    segment,
    skipped_offsets,
    snapshots,
    syncing,
)
from tests.simulation.patching import Patch, patched

ROOT = "/data"
OPEN_FLAGS = {name: getattr(os, name) for name in dir(os) if name.startswith("O_")}
MODULES = (
    begun_logs, checkpoints, cuts, deleting, file_log, folder, group_sync, identity, index_file, last_stop, log_files,
    losses, missing, open_files, recovery, rewriting, segment, skipped_offsets, snapshots, syncing,
)  # fmt: skip


class Killed(BaseException):
    """The simulated process was killed at this point."""


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


class Disk:
    """The content of the disk, the open descriptors of the process, and when that process dies.

    `fuse` is the number of changes that still succeed; the process dies in the next one. If `full`, writes fail.
    """

    def __init__(self, rng: random.Random, root: Directory | None = None, has_syncfs: bool = True) -> None:
        self.rng = rng
        self.root = root or Directory()
        self.has_syncfs = has_syncfs
        self.boot = 1
        self.fuse: int | None = None
        self.full = False
        self.dead = False
        self.now_ms: Callable[[], int] = lambda: 0
        self.changes = 0
        self._open: dict[int, File | Directory] = {}
        self._next_fd = 100
        self.os = SimpleNamespace(
            **OPEN_FLAGS,
            close=self.close, dup=self.dup, fdatasync=self.fsync, fstat=self.fstat, fsync=self.fsync,
            ftruncate=self.ftruncate, getpid=lambda: 1, listdir=self.listdir, makedirs=self.makedirs,
            mkdir=self.mkdir, open=self.open, pread=self.pread, pwrite=self.pwrite, rename=self.rename,
            scandir=self.scandir, stat=self.stat, truncate=self.truncate, unlink=self.unlink, write=self.write,
            path=SimpleNamespace(
                abspath=str, basename=os.path.basename, dirname=os.path.dirname, exists=self.exists
            ),
        )  # fmt: skip

    # Death.

    def restart(self) -> None:
        """A new process after kill -9, with all that the old one wrote."""
        self._open.clear()
        self.dead = self.full = False
        self.fuse = None

    def lose_power(self) -> None:
        self.root = self.root.after_power_loss(self.rng)
        self.boot += 1
        self.restart()

    def copy(self) -> Disk:
        """An independent disk with the same content, for experiments."""
        disk = Disk(random.Random(1), self.root.copy(), self.has_syncfs)
        disk.boot = self.boot
        disk.now_ms = self.now_ms
        return disk

    def _about_to_change(self, needs_room: bool = False) -> bool:
        """Whether the process dies in this change."""
        if self.dead:
            raise Killed
        if self.full and needs_room:
            raise OSError(errno.ENOSPC, "No space left on device (simulated)")
        self.changes += 1
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.dead = True
                return True
        return False

    def _survive(self, needs_room: bool = False) -> None:
        if self._about_to_change(needs_room):
            raise Killed

    # Names.

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _directory(self, path: str) -> Directory:
        if path == ROOT:
            return self.root
        found = self.root.names.get(path[len(ROOT) + 1 :])
        if not isinstance(found, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return found

    def _find(self, path: str) -> File | Directory:
        if path == ROOT:
            return self.root
        parent, name = self._parent(path)
        found = parent.names.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return found

    def _file(self, path: str) -> File:
        found = self._find(path)
        assert isinstance(found, File), path
        return found

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        return list(self._directory(path).names)

    def scandir(self, path: str) -> list[Any]:
        def entry(name: str, node: File | Directory) -> Any:
            return SimpleNamespace(name=name, is_dir=lambda follow_symlinks: isinstance(node, Directory))

        return [entry(name, node) for name, node in self._directory(path).names.items()]

    def makedirs(self, path: str, exist_ok: bool) -> None:
        assert path == ROOT

    def mkdir(self, path: str, mode: int) -> None:
        parent, name = self._parent(path)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._survive(needs_room=True)
        parent.change((name, Directory()))

    def rename(self, old: str, new: str) -> None:
        before, old_name = self._parent(old)
        after, new_name = self._parent(new)
        assert before is after, "one directory, one change"
        self._survive()
        before.change((old_name, None), (new_name, self._find(old)))

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        self._survive()
        parent.change((name, None))

    def rmtree(self, path: str, ignore_errors: bool) -> None:
        with suppress(FileNotFoundError):
            for name in list(self._directory(path).names):
                self.unlink(f"{path}/{name}")
            parent, name = self._parent(path)
            self._survive()
            parent.change((name, None))

    def stat(self, path: str) -> Any:
        file = self._file(path)
        return SimpleNamespace(st_size=len(file.data), st_mtime_ns=file.mtime_ms * 1_000_000)

    def fstat(self, fd: int) -> Any:
        file = self._open[fd]
        assert isinstance(file, File)
        return SimpleNamespace(st_size=len(file.data))

    # Descriptors.

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        if self.dead:
            raise Killed
        node: File | Directory | None
        if not flags & os.O_CREAT:
            node = self._find(path)
        else:
            parent, name = self._parent(path)
            node = parent.names.get(name)
            if node is not None and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            if node is None:
                self._survive(needs_room=True)
                node = File()
                node.mtime_ms = self.now_ms()
                parent.change((name, node))
        if flags & os.O_TRUNC and isinstance(node, File) and node.data:
            self._survive()
            node.change(0, None)
        self._next_fd += 1
        self._open[self._next_fd] = node
        return self._next_fd

    def dup(self, fd: int) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = self._open[fd]
        return self._next_fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        file = self._open[fd]
        assert isinstance(file, File)
        return bytes(file.data[position : position + size])

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        data = bytes(data)
        file = self._open[fd]
        assert isinstance(file, File)
        if self.full and self.rng.random() < 0.3:
            # A disk can become full in the middle of a write.
            data = data[: self.rng.randrange(len(data))]
            file.change(position, data)
            return len(data)
        if self._about_to_change(needs_room=True):
            file.change(position, data[: self.rng.randint(0, len(data))])
            raise Killed
        file.change(position, data)
        file.mtime_ms = self.now_ms()
        return len(data)

    def write(self, fd: int, data: bytes) -> int:
        file = self._open[fd]
        assert isinstance(file, File)
        return self.pwrite(fd, data, len(file.data))

    def ftruncate(self, fd: int, size: int) -> None:
        file = self._open[fd]
        assert isinstance(file, File)
        self._survive()
        file.change(size, None)

    def truncate(self, path: str, size: int) -> None:
        file = self._file(path)
        self._survive()
        file.change(size, None)

    def fsync(self, fd: int) -> None:
        self._survive()
        self._open[fd].sync()

    def syncfs(self, fd: int) -> int:
        self._survive()
        self._sync_all(self.root)
        return 0

    def _sync_all(self, directory: Directory) -> None:
        directory.sync()
        for node in directory.names.values():
            if isinstance(node, File):
                node.sync()
            else:
                self._sync_all(node)

    @contextmanager
    def open_file(self, path: str, mode: str) -> Iterator[Any]:
        """The builtin `open`, with the features that storage uses."""
        fd = self.open(path, os.O_RDWR)
        file = self._open[fd]
        assert isinstance(file, File)
        try:
            yield SimpleNamespace(
                fileno=lambda: fd, read=lambda: bytes(file.data), truncate=lambda size: self.ftruncate(fd, size)
            )
        finally:
            self.close(fd)


class _Here:
    """A thread pool that runs everything in the calling thread."""

    def __init__(self, threads: int) -> None:
        self.map = map

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


@contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """Let the storage code use this disk in place of the machine's."""
    uuids = random.Random(7)
    new_uuid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=uuids.randbytes(16).hex(), bytes=uuids.randbytes(16)))
    patches: list[Patch] = [(module, "os", disk.os) for module in MODULES]
    patches += [(module, "open", disk.open_file) for module in (checkpoints, recovery, rewriting)]
    patches += [
        (syncing, "_find_syncfs", lambda: disk.syncfs if disk.has_syncfs else None),
        (syncing, "ThreadPoolExecutor", _Here),
        (syncing, "monotonic", lambda: 0.0),
        (cuts, "now_text", lambda: "2026-01-01T00:00:00Z"),
        (identity, "fcntl", SimpleNamespace(LOCK_EX=0, LOCK_NB=0, flock=lambda fd, how: None)),
        (identity, "uuid", new_uuid),
        (deleting, "uuid", new_uuid),
        (deleting, "shutil", SimpleNamespace(rmtree=disk.rmtree)),
    ]
    with patched(patches):
        yield
