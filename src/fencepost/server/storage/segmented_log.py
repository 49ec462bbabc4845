"""The row of segments of one log: finding one, dropping the oldest, putting a cleaned one in the place of others.

Whoever dies in the middle of a change leaves files from which `recovery.py` makes either the log of before or
the one of after. Kafka's names say how far it got: `.cleaned`, `.swap`, `.deleted`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from fencepost.machines.log.interface import StorageFailed
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.segment import SWAP, Segment
from fencepost.server.storage.snapshots import SnapshotFiles

if TYPE_CHECKING:
    from fencepost.server.storage.rewriting import FileRewrite

_base_offset = attrgetter("base_offset")
_address = attrgetter("address")


class LogFolder(Protocol):
    """What a log asks of the folder that it is in."""

    def snapshot_saved(self, log: SegmentedLog, rolled: bool) -> None: ...

    def start_moved(self, log: SegmentedLog) -> None:
        """Keep `log.start_offset`, which lies within a segment. Raises OSError."""
        ...

    def clean_moved(self, log: SegmentedLog) -> None:
        """Keep `log.clean_offset`, if possible."""
        ...

    def remove_later(self, paths: list[str]) -> None: ...

    def swap(self, rewrite: FileRewrite, done: Callable[[BaseException | None], None]) -> None:
        """Call `rewrite.commit()` in another thread, then `done` in this one."""
        ...


class SegmentedLog(ABC):
    """`_segments` is what the directory holds, in order; the last one is appended to."""

    __slots__ = (
        "_files",
        "_forgotten",
        "_segments",
        "_snapshot_address",
        "_swapping",
        "clean_offset",
        "directory",
        "directory_changed",
        "end_address",
        "end_offset",
        "folder",
        "recovery_address",
        "snapshots",
        "start_address",
        "start_offset",
        "synced_address",
    )

    def __init__(
        self, directory: str, files: OpenFiles, segments: list[Segment], end_offset: int, snapshots: SnapshotFiles
    ) -> None:
        self.directory = directory
        self.folder: LogFolder | None = None
        self.start_offset = segments[0].base_offset if segments else 0
        self.end_offset = end_offset
        self.start_address = segments[0].address if segments else 0
        self.end_address = segments[-1].address + segments[-1].size if segments else 0
        self.clean_offset = 0
        # What the folder does for durability: how far fdatasync got, how far together with indexes and a
        # snapshot, and whether the directory has names that are not durable yet.
        self.synced_address = self.start_address
        self.recovery_address = self.start_address
        self.directory_changed = False
        self.snapshots = snapshots
        self._snapshot_address = self.end_address
        self._files = files
        self._segments = segments
        self._forgotten = False
        self._swapping = False  # While a cleaned segment is about to come in, no file is removed.

    @property
    def name(self) -> str:
        """`<topic>-<partition>`."""
        return os.path.basename(self.directory)

    @property
    def is_forgotten(self) -> bool:
        """Whether it was deleted: then its paths are those of whoever has its name now, and nothing may touch them."""
        return self._forgotten

    def _check_there(self) -> None:
        if self._forgotten:
            raise StorageFailed(f"{self.directory} is deleted")

    # Finding.

    def segments(self) -> list[Segment]:
        return self._segments

    def segments_past(self, address: int) -> list[Segment]:
        """The segments with bytes past `address`, newest first."""
        found = []
        for segment in reversed(self._segments):
            if segment.address + segment.size <= address:
                break
            found.append(segment)
        return found

    def end(self) -> tuple[int, int]:
        """The end offset, and how many bytes the `.log` files have together."""
        return self.end_offset, self.end_address - self.start_address

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[self._segment_index(offset)]

    def _segment_index(self, offset: int) -> int:
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def _segment_at(self, address: int) -> Segment:
        # Of an empty segment and its follower at the same address, the follower.
        return self._segments[bisect_right(self._segments, address, key=_address) - 1]

    @abstractmethod
    def forget_places(self, address: int) -> None:
        """Nothing may be remembered of what lies below `address`, for it is gone or moved."""

    # Dropping the oldest.

    def advance_start(self, offset: int) -> None:
        assert offset <= self.end_offset, f"the log ends at {self.end_offset}, it cannot begin at {offset}"
        if self._forgotten or not self._segments:
            return
        before = self.start_offset
        self.start_offset = max(before, offset)
        self._remove_segments(self._count_removable())
        if self._segments[0].base_offset < self.start_offset != before and self.folder is not None:
            try:
                self.folder.start_moved(self)
            except OSError as error:
                self.start_offset = max(before, self._segments[0].base_offset)
                raise StorageFailed(str(error)) from error

    def _count_removable(self) -> int:
        """How many of the oldest segments hold nothing that a reader or a restart needs."""
        if self._swapping:
            return 0
        # Of producers that wrote to them only a snapshot knows.
        limit = min(self.start_offset, self.snapshots.newest_offset())
        return max(0, bisect_right(self._segments, limit, key=_base_offset) - 1)

    def _remove_segments(self, count: int) -> None:
        """The oldest first, so that whenever the process dies the rest is a log."""
        if not count:
            return
        doomed = []
        # Differs: `file.delete.delay.ms` is not waited for: nobody reads meanwhile, so files may go at once.
        with suppress(OSError):  # What cannot be removed now is tried again with the next call.
            for _ in range(count):
                doomed.append(self._segments[0].set_aside())
                del self._segments[0]
                self._files.at("retention.delete")
        self.start_address = self._segments[0].address
        self.forget_places(self.start_address)
        self.directory_changed = True
        self._remove_later(doomed)

    def _remove_later(self, paths: list[str]) -> None:
        if self.folder is not None:
            self.folder.remove_later(paths)
            return
        for path in paths:
            with suppress(OSError):
                os.unlink(path)

    # Cleaning.

    def note_clean(self, offset: int) -> None:
        self.clean_offset = offset
        if self.folder is not None:
            self.folder.clean_moved(self)

    def begin_swap(self, base_offset: int, end_offset: int) -> bool:
        """Whether these are still closed segments of the log. Then they stay, until `end_swap` or `cancel_swap`."""
        bases = [segment.base_offset for segment in self._segments]
        if self._forgotten or self._swapping or base_offset not in bases or end_offset not in bases:
            return False
        self._swapping = True
        return True

    def cancel_swap(self) -> None:
        self._swapping = False

    def end_swap(self, base_offset: int, end_offset: int, cleaned: Segment) -> None:
        """Put the cleaned segment, whose files stand ready under `.swap`, in the place of the others."""
        assert not self._forgotten, f"{self.directory} is deleted"
        self._swapping = False
        first, after = self._segment_index(base_offset), self._segment_index(end_offset)
        old = self._segments[first:after]
        # The cleaned one takes over the names of its first predecessor's indexes.
        doomed = [segment.set_aside(keep_indexes=segment is old[0]) for segment in old]
        self._files.at("clean.install")
        cleaned.change_suffix(SWAP, "")
        self._segments[first:after] = [cleaned]
        self._move_addresses(first, old)
        self.directory_changed = True
        self._remove_later(doomed)

    def _move_addresses(self, index: int, old: list[Segment]) -> None:
        """What lies after the cleaned segment keeps its address; those below it follow each other up to there."""
        begin = old[0].address
        end = address = old[-1].address + old[-1].size
        for segment in reversed(self._segments[: index + 1]):
            address -= segment.size
            segment.address = address
        self.start_address = address
        moved_by = self._segments[index].address - begin

        def moved(address: int) -> int:
            # From within the cleaned segment to its beginning: rather sync too much than too little.
            return address if address >= end else min(address, begin) + moved_by

        self.synced_address = moved(self.synced_address)
        self.recovery_address = moved(self.recovery_address)
        self._snapshot_address = moved(self._snapshot_address)
        self.forget_places(end)
