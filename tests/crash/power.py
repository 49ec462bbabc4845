"""A machine that loses power: data that the broker did not sync may be lost, cut, or full of zeros and garbage.

    broker = WatchedBroker(data=folder, settings={"fencepost.flush.on.commit": "true"}, syncs=path)
    disk = DurableDisk(folder, path)            # Everything that is there now counts as written.
    broker.start()
    ...
    broker.kill()
    disk.lose_power(rng)                        # And the next start is that of another boot.

The broker is the real one. This module starts it with its own fsync and fdatasync, which write down what each call
made durable: how much of a file, or which names of a directory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

from fencepost.child import python_module
from fencepost.server.storage import syncing
from fencepost.testing import Broker

PAGE_BYTES = 4096
ROOT = Path(__file__).parents[2]


class WatchedBroker(Broker):
    """A broker whose syncs are written to the file `syncs` while `is_watched`."""

    def __init__(self, *, syncs: Path, **options: Any) -> None:
        super().__init__(**options)
        self.syncs = syncs
        self.is_watched = False

    def _command(self) -> list[str]:
        command = super()._command()
        if not self.is_watched:
            return command
        before = python_module("fencepost")
        assert command[: len(before)] == before
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.crash.power import main; main()"
        return [sys.executable, "-P", "-c", program, str(self.syncs), *command[len(before) :]]


class DurableDisk:
    """What a folder may hold after a power loss: at least the durable part, at most everything."""

    def __init__(self, folder: Path, syncs: Path) -> None:
        self._folder = folder
        self._sizes: dict[int, int] = {}  # By inode, since files are renamed.
        self._named: dict[int, set[int]] = {}  # By the directory's inode: inodes of the files with durable names.
        syncs.unlink(missing_ok=True)
        self._syncs = syncs
        for path in [folder, *folder.rglob("*")]:
            found = path.stat()
            if stat.S_ISDIR(found.st_mode):
                self._named[found.st_ino] = named_in(str(path))
            else:
                self._sizes[found.st_ino] = found.st_size

    def lose_power(self, rng: random.Random) -> str:
        """Remove some of the data and names that were not synced; return how much, in words."""
        self._take_syncs()
        (self._folder / "boot-id").write_text("another boot")
        lost_bytes = lost_names = 0
        for directory in [self._folder, *(path for path in self._folder.iterdir() if path.is_dir())]:
            if not directory.exists():
                continue
            durable = self._named.get(directory.stat().st_ino, set())
            for path in sorted(path for path in directory.iterdir() if path.name not in ("boot-id", ".lock")):
                # After a rename, a file could also have its old name; that is not simulated.
                if path.stat().st_ino not in durable and rng.random() < 0.3:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    lost_names += 1
                elif path.is_file():
                    lost_bytes += self._lose_tail(path, rng)
        return f"power lost with {lost_bytes} bytes and {lost_names} names"

    def _take_syncs(self) -> None:
        if self._syncs.exists():
            for line in self._syncs.read_bytes().rpartition(b"\n")[0].splitlines():
                inode, what = json.loads(line)
                if isinstance(what, int):
                    self._sizes[inode] = what
                else:
                    self._named[inode] = set(what)

    def _lose_tail(self, path: Path, rng: random.Random) -> int:
        found = path.stat()
        size, durable = found.st_size, self._sizes.get(found.st_ino, 0)
        if durable >= size or rng.random() < 0.2:  # The kernel had written it already.
            return 0
        data = bytearray(path.read_bytes())
        since = rng.randint(durable, size)
        match rng.choice(["cut", "cut", "zeros", "garbage", "pages"]):
            case "cut":
                del data[since:]
            case "zeros":
                data[since:] = bytes(size - since)
            case "garbage":
                data[since:] = rng.randbytes(size - since)
            case "pages":  # Written in any order, and some not at all.
                for page in range(durable // PAGE_BYTES, size // PAGE_BYTES + 1):
                    begin, end = max(page * PAGE_BYTES, durable), min((page + 1) * PAGE_BYTES, size)
                    if rng.random() < 0.5:
                        data[begin:end] = bytes(end - begin)
        path.write_bytes(data)
        return size - since


def named_in(directory: str | int) -> set[int]:
    with os.scandir(directory) as entries:
        return {entry.inode() for entry in entries}


# --- in the broker's process ----------------------------------------------------------------------------------


def main() -> None:
    path, *arguments = sys.argv[1:]
    watch_syncs(path)
    from fencepost.cli import main as run

    sys.argv = ["fencepost", *arguments]
    sys.exit(run())


def watch_syncs(path: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note_sync(fd: int) -> None:
        """Does not wait for the real disk, which will not lose power."""
        found = os.fstat(fd)
        # Writes during a sync may or may not be part of it, so only those before it count.
        what = sorted(named_in(fd)) if stat.S_ISDIR(found.st_mode) else found.st_size
        os.write(notes, json.dumps([found.st_ino, what]).encode() + b"\n")

    os.fsync = os.fdatasync = note_sync  # type: ignore[assignment]
    # A sync of a whole file system does not say which files it made durable.
    syncing._find_syncfs = lambda: None
