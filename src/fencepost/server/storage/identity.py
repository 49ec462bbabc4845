"""Whether a process may use a data folder: its lock, its cluster, the formats of its files; and the machine's boot.

A start refuses files of a later version before it changes any file: ignoring one, as if it were damaged, could lose its
contents. The cluster's document has a version of its own, which stands for all other formats, such as that of record
batches: `broker/metadata.py`.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress

from fencepost.server.storage.checkpoints import (
    CLEAN_OFFSETS_NAME,
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    read_file,
    replace_file,
)
from fencepost.server.storage.last_stop import CLEAN_NAME

LOCK_NAME = ".lock"
META_NAME = "meta.properties"


class DataFolderUnusable(Exception):
    """The broker cannot start on this folder."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}\n\nhint: {hint}")
        self.problem = problem
        self.hint = hint


class DataFolderInUse(DataFolderUnusable):
    """A broker runs on this folder."""


def current_boot() -> str | None:
    """The id of this boot; None if the kernel does not have one, and then every start counts as a new boot."""
    content = read_file("/proc/sys/kernel/random/boot_id")
    return content.decode().strip() if content else None


def make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError as error:
        raise DataFolderUnusable(f"{path} is a file and not a data folder", "choose a folder with --data") from error
    except OSError as error:
        raise DataFolderUnusable(
            f"the data folder {path} cannot be made: {error.strerror}",
            "choose a folder that this user may write to with --data",
        ) from error


def take_lock(folder: str) -> int:
    """Return the descriptor that holds the lock until it is closed or the process ends."""
    path = f"{folder}/{LOCK_NAME}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DataFolderUnusable(
            f"the data folder {folder} cannot be written: {error.strerror}",
            "choose a folder that this user may write to with --data",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise DataFolderInUse(
            f"the data folder {folder} is in use by process {pid}",
            "stop that broker, or give this one another folder with --data",
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def drop_lock(fd: int) -> None:
    """Let go of the folder. The file is empty then: it has no process id that another process may get."""
    with suppress(OSError):
        os.ftruncate(fd, 0)
    os.close(fd)


def open_meta(folder: str, cluster_id: str | None, node_id: int) -> str:
    """The cluster's id; a new one if the folder is new."""
    path = f"{folder}/{META_NAME}"
    content = read_file(path)
    if content is None:
        cluster_id = cluster_id or urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        write_meta(folder, cluster_id, node_id)
        return cluster_id
    known = dict(line.split("=", 1) for line in content.decode(errors="replace").splitlines() if "=" in line)
    if known.get("version") != "1" or "cluster.id" not in known:
        raise DataFolderUnusable(
            f"{path} has version {known.get('version')}, expected 1, and cluster.id {known.get('cluster.id')}",
            "a later version or another program made this folder, or the file is damaged: start that program, restore "
            "the file from a copy, or choose another folder with --data",
        )
    return known["cluster.id"]


def write_meta(folder: str, cluster_id: str, node_id: int) -> None:
    content = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
    replace_file(f"{folder}/{META_NAME}", content.encode(), durable=True)


CHECKPOINTS = (RECOVERY_POINTS_NAME, START_OFFSETS_NAME, CLEAN_OFFSETS_NAME, CLEAN_NAME)
CHECKPOINT_VERSION = 0
TOPIC_ID_VERSION = 0

_TOPIC_ID_VERSION = re.compile(rb"version: *(\d+)\s")


def refuse_later_checkpoints(folder: str) -> None:
    """Raises DataFolderUnusable."""
    for name in CHECKPOINTS:
        first, newline, _ = (read_file(f"{folder}/{name}") or b"").partition(b"\n")
        if newline and first.isdigit():
            _refuse_later(f"{folder}/{name}", int(first), CHECKPOINT_VERSION)


def refuse_later_topic_id(path: str, content: bytes | None) -> None:
    """Raises DataFolderUnusable."""
    match = _TOPIC_ID_VERSION.match(content or b"")
    if match is not None:
        _refuse_later(path, int(match[1]), TOPIC_ID_VERSION)


def _refuse_later(path: str, found: int, known: int) -> None:
    if found > known:
        raise DataFolderUnusable(
            f"{path} has version {found}, and this version of Fencepost knows versions up to {known}",
            "start the version that wrote it, or restore a copy of the folder from before the upgrade",
        )
