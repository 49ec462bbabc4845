"""The calls of `os` that storage makes, on the simulated disk. Every change first asks `Faults` whether it succeeds."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from fencepost.protocol.batch import Buffer
from tests.simulation.disk.content import ROOT, Directory, File, Tree
from tests.simulation.disk.faults import Faults, Killed


class Paths:
    """The calls that take a path: they look names up and change them."""

    def __init__(self, tree: Tree, faults: Faults) -> None:
        self._tree = tree
        self._faults = faults

    def exists(self, path: str) -> bool:
        try:
            self._tree.find(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> Any:
        file = self._tree.file(path)
        return SimpleNamespace(st_size=len(file.data), st_mode=stat.S_IFREG, st_mtime_ns=file.mtime_ms * 1_000_000)

    def listdir(self, path: str) -> list[str]:
        return list(self._tree.directory(path).names)

    def scandir(self, path: str) -> list[Any]:
        def entry(name: str, node: File | Directory) -> Any:
            return SimpleNamespace(name=name, is_dir=lambda follow_symlinks: isinstance(node, Directory))

        return [entry(name, node) for name, node in self._tree.directory(path).names.items()]

    def makedirs(self, path: str, exist_ok: bool) -> None:
        assert path == ROOT

    def mkdir(self, path: str, mode: int) -> None:
        parent, name = self._tree.parent(path)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._faults.survive(needs_room=True)
        parent.change((name, Directory()))

    def rename(self, old: str, new: str) -> None:
        before, old_name = self._tree.parent(old)
        after, new_name = self._tree.parent(new)
        assert before is after, "one directory, one change"
        self._faults.survive()
        before.change((old_name, None), (new_name, self._tree.find(old)))

    def unlink(self, path: str) -> None:
        parent, name = self._tree.parent(path)
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        self._faults.survive()
        parent.change((name, None))

    def rmtree(self, path: str, ignore_errors: bool) -> None:
        """That of `shutil`."""
        with suppress(FileNotFoundError):
            for name in list(self._tree.directory(path).names):
                self.unlink(f"{path}/{name}")
            parent, name = self._tree.parent(path)
            self._faults.survive()
            parent.change((name, None))

    def truncate(self, path: str, size: int) -> None:
        file = self._tree.file(path)
        self._faults.survive()
        file.change(size, None)


class Descriptors:
    """The open files of the process, and the calls that open them or take a descriptor."""

    def __init__(self, tree: Tree, faults: Faults, now_ms: Callable[[], int]) -> None:
        self._tree = tree
        self._faults = faults
        self._now_ms = now_ms
        self._open: dict[int, File | Directory] = {}
        self._last_fd = 100

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        self._faults.check_alive()
        node: File | Directory | None
        if not flags & os.O_CREAT:
            node = self._tree.find(path)
        else:
            parent, name = self._tree.parent(path)
            node = parent.names.get(name)
            if node is not None and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            if node is None:
                self._faults.survive(needs_room=True)
                node = File()
                node.mtime_ms = self._now_ms()
                parent.change((name, node))
        if flags & os.O_TRUNC and isinstance(node, File) and node.data:
            self._faults.survive()
            node.change(0, None)
        return self._add(node)

    def _add(self, node: File | Directory) -> int:
        self._last_fd += 1
        self._open[self._last_fd] = node
        return self._last_fd

    def _file(self, fd: int) -> File:
        file = self._open[fd]
        assert isinstance(file, File)
        return file

    @contextmanager
    def open_file(self, path: str, mode: str) -> Iterator[Any]:
        """The builtin `open`, with the features that storage uses."""
        fd = self.open(path, os.O_RDWR)
        file = self._file(fd)
        try:
            yield SimpleNamespace(
                fileno=lambda: fd, read=lambda: bytes(file.data), truncate=lambda size: self.ftruncate(fd, size)
            )
        finally:
            self.close(fd)

    def dup(self, fd: int) -> int:
        return self._add(self._open[fd])

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def close_all(self) -> None:
        self._open.clear()

    def fstat(self, fd: int) -> Any:
        return SimpleNamespace(st_size=len(self._file(fd).data))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._file(fd).data[position : position + size])

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        data = bytes(data)
        file = self._file(fd)
        part = self._faults.short_write(data)
        if part is not None:
            file.change(position, part)
            return len(part)
        if self._faults.strike(needs_room=True):
            file.change(position, self._faults.torn_write(data))
            raise Killed
        file.change(position, data)
        file.mtime_ms = self._now_ms()
        return len(data)

    def write(self, fd: int, data: bytes) -> int:
        return self.pwrite(fd, data, len(self._file(fd).data))

    def ftruncate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        self._faults.survive()
        file.change(size, None)

    def fsync(self, fd: int) -> None:
        self._faults.survive()
        self._open[fd].sync()

    def syncfs(self, fd: int) -> int:
        self._faults.survive()
        self._tree.root.sync_all()
        return 0
