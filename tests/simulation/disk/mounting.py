"""Puts a simulated disk under `fencepost.server.storage`, which runs unchanged but has another module for `os`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from fencepost.server.storage import (
    checkpoints,
    cuts,
    deleting,
    file_log,
    folder,
    group_sync,
    identity,
    last_stop,
    log_files,
    losses,
    missing,
    offset_files,
    open_files,
    recovery,
    rewriting,
    segment,
    segment_indexes,
    snapshots,
    syncing,
)
from tests.simulation.disk.disk import Disk
from tests.simulation.patching import Patch, patched

OPEN_FLAGS = {name: getattr(os, name) for name in dir(os) if name.startswith("O_")}
MODULES = (
    checkpoints, cuts, deleting, file_log, folder, group_sync, identity, last_stop, log_files, losses,
    missing, offset_files, open_files, recovery, rewriting, segment, segment_indexes, snapshots, syncing,
)  # fmt: skip


class _Here:
    """A thread pool that runs everything in the calling thread."""

    def __init__(self, threads: int) -> None:
        self.map = map

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _os_on(disk: Disk) -> SimpleNamespace:
    """The module `os` as the process on this disk sees it, with the names that storage uses."""
    paths, files = disk.paths, disk.descriptors
    return SimpleNamespace(
        **OPEN_FLAGS,
        close=files.close, dup=files.dup, fdatasync=files.fsync, fstat=files.fstat, fsync=files.fsync,
        fchmod=lambda fd, mode: None, ftruncate=files.ftruncate, getpid=lambda: 1, listdir=paths.listdir,
        makedirs=paths.makedirs, mkdir=paths.mkdir, open=files.open, pread=files.pread, pwrite=files.pwrite,
        rename=paths.rename, scandir=paths.scandir, stat=paths.stat, truncate=paths.truncate,
        unlink=paths.unlink, write=files.write,
        path=SimpleNamespace(abspath=str, basename=os.path.basename, dirname=os.path.dirname, exists=paths.exists),
    )  # fmt: skip


@contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """Let the storage code use this disk in place of the machine's."""
    uuids = random.Random(7)
    new_uuid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=uuids.randbytes(16).hex(), bytes=uuids.randbytes(16)))
    os_on_disk = _os_on(disk)
    patches: list[Patch] = [(module, "os", os_on_disk) for module in MODULES]
    patches += [(module, "open", disk.descriptors.open_file) for module in (recovery, rewriting)]
    patches += [
        (syncing, "_find_syncfs", lambda: disk.descriptors.syncfs if disk.has_syncfs else None),
        (syncing, "ThreadPoolExecutor", _Here),
        (syncing, "monotonic", lambda: 0.0),
        (cuts, "now_text", lambda: "2026-01-01T00:00:00Z"),
        (identity, "fcntl", SimpleNamespace(LOCK_EX=0, LOCK_NB=0, flock=lambda fd, how: None)),
        (identity, "uuid", new_uuid),
        (deleting, "uuid", new_uuid),
        (deleting, "shutil", SimpleNamespace(rmtree=disk.paths.rmtree)),
    ]
    with patched(patches):
        yield
