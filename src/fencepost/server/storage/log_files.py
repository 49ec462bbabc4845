"""The files of one log: which segments it has, how much of them is on disk, and how segments are removed and replaced.

A process that dies in the middle of a change leaves files from which `recovery.py` makes either the log before the
change or the log after it. Kafka's names say how far the change got: `.cleaned`, `.swap`, `.deleted`.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from fencepost.machines.log.interface import LogFenced, StorageFailed
from fencepost.server.storage.aborted_index import encode_txn_check
from fencepost.server.storage.checkpoints import EPOCHS_NAME, TOPIC_ID_NAME, encode_topic_id, replace_file
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.segment import SWAP, Segment
from fencepost.server.storage.segment_indexes import UNKNOWN_TIMESTAMP
from fencepost.server.storage.snapshots import SnapshotFiles

if TYPE_CHECKING:
    from fencepost.server.storage.file_log import FileLog
    from fencepost.server.storage.rewriting import FileRewrite


_base_offset = attrgetter("base_offset")
_address = attrgetter("address")


class LogFolder(Protocol):
    """The services that a log needs from its data folder."""

    def log_begun(self, name: str, topic_id: bytes) -> None:
        """Note that the log `name` has files from now on."""
        ...

    def snapshot_saved(self, log: FileLog, rolled: bool) -> None: ...

    def start_moved(self, name: str, start_offset: int) -> None:
        """Keep the start offset of the log `name`, which lies within a segment. Raises OSError."""
        ...

    def clean_moved(self, name: str, clean_offset: int) -> None:
        """Keep the clean offset of the log `name`, if possible."""
        ...

    def remove_later(self, paths: list[str]) -> None: ...

    def swap(self, rewrite: FileRewrite, done: Callable[[BaseException | None], None]) -> None:
        """Call `rewrite.commit()` in another thread, then `done` in this one."""
        ...


class Segments(list[Segment]):
    """In the order of the log; the last one, the active, is appended to."""

    def index_of(self, offset: int) -> int:
        return max(0, bisect_right(self, offset, key=_base_offset) - 1)

    def of(self, offset: int) -> Segment:
        """The segment that has `offset`; the first one if it is below all."""
        return self[self.index_of(offset)]

    def at(self, address: int) -> Segment:
        """The segment that has `address`; of an empty segment and its follower, the follower."""
        return self[bisect_right(self, address, key=_address) - 1]

    def offset_at(self, address: int) -> int:
        """The base offset of the batch at `address`, or of the segment that begins there."""
        segment = self.at(address)
        if address == segment.address:
            return segment.base_offset
        return int.from_bytes(segment.read(address - segment.address, 8), "big")

    def past(self, address: int) -> list[Segment]:
        """The segments with bytes past `address`, newest first."""
        found = []
        for segment in reversed(self):
            if segment.address + segment.size <= address:
                break
            found.append(segment)
        return found


class LogFiles:
    """Everything in one log's directory, and how much of it is durable.

    `synced_address`: how far the `.log` files are on disk. `recovery_point` and `recovery_address`: how far they are
    together with their indexes and a snapshot. `snapshot_address`: the end of the log at its last snapshot.
    """

    __slots__ = (
        "_is_swapping",
        "_open_files",
        "directory",
        "directory_changed",
        "directory_created",
        "folder",
        "is_forgotten",
        "places",
        "recovery_address",
        "recovery_point",
        "segments",
        "snapshot_address",
        "snapshots",
        "synced_address",
    )

    def __init__(self, directory: str, open_files: OpenFiles, segments: list[Segment], snapshots: list[int]) -> None:
        self.directory = directory
        self.folder: LogFolder | None = None
        self.segments = Segments(segments)
        self.snapshots = SnapshotFiles(directory, open_files.at, snapshots)
        self.places = Places()
        # Whether the log was deleted. Then its paths may belong to a new log of the same name.
        self.is_forgotten = False
        # Whether the directory, and its parent, have names that are not on disk yet.
        self.directory_changed = False
        self.directory_created = False
        self.recovery_point = 0
        self.synced_address = self.start_address
        self.recovery_address = self.start_address
        self.snapshot_address = self.end_address
        self._open_files = open_files
        self._is_swapping = False  # While a cleaned segment is about to be swapped in, no file is removed.

    @property
    def name(self) -> str:
        """`<topic>-<partition>`."""
        return os.path.basename(self.directory)

    @property
    def start_address(self) -> int:
        return self.segments[0].address if self.segments else 0

    @property
    def end_address(self) -> int:
        return self.segments[-1].address + self.segments[-1].size if self.segments else 0

    def check_there(self) -> None:
        if self.is_forgotten:
            raise StorageFailed(f"{self.directory} is deleted")

    def fenced(self) -> LogFiles:
        """What a handle on these files has once another one has taken them over."""
        return _FencedFiles(self.directory, self._open_files)

    def create_directory(self, topic_id: bytes) -> None:
        """Raises OSError."""
        try:
            os.mkdir(self.directory, 0o755)
            self.directory_created = True
        except FileExistsError:
            pass
        path = f"{self.directory}/{TOPIC_ID_NAME}"
        if not os.path.exists(path):
            replace_file(path, encode_topic_id(topic_id), durable=False)

    def create_segment(self, base_offset: int) -> Segment:
        """Begin a new active segment at the end of the log. Raises OSError, and then there is none."""
        segment = Segment(self._open_files, self.directory, base_offset, self.end_address, 0)
        try:
            segment.create_files()
        except OSError:
            segment.remove_files()
            raise
        self.segments.append(segment)
        self.directory_changed = True
        return segment

    # Durability.

    def is_changed(self) -> bool:
        """Whether they may differ from what is durable under the recovery point."""
        return self.directory_changed or self.end_address > self.recovery_address

    def to_sync(self) -> list[str]:
        """Every file that a recovery point vouches for and that may have bytes in memory only."""
        paths = [f"{self.directory}/{name}" for name in (TOPIC_ID_NAME, EPOCHS_NAME)]
        paths += self.snapshots.paths()
        for segment in self.segments.past(min(self.recovery_address, self.end_address - 1)):
            paths += segment.paths()
        return paths

    def settle(self) -> bool:
        """Complete the indexes and close the files; return whether the disk took everything."""
        is_whole = True
        for segment in self.segments:
            is_last = segment is self.segments[-1]
            try:
                if is_last and segment.indexes.max_timestamp != UNKNOWN_TIMESTAMP:
                    segment.indexes.add_time()
                segment.indexes.flush()
            except OSError:
                is_whole = False
            segment.close_file()
        return is_whole

    def forget(self) -> None:
        """Close without writing, for good: the log is deleted, or a test pretends that the process died."""
        self.is_forgotten = True
        for segment in self.segments:
            segment.close_file()
        self.segments.clear()

    # Removing the oldest.

    def remove_oldest(self, start_offset: int) -> None:
        """Remove the segments that end at or before `start_offset`, oldest first, as far as a snapshot covers them.

        Only a snapshot knows the producers that wrote to them. If the process dies in between, the rest is a log.
        """
        limit = min(start_offset, self.snapshots.newest_offset())
        count = max(0, bisect_right(self.segments, limit, key=_base_offset) - 1)
        if not count or self._is_swapping:
            return
        doomed = []
        # Differs: `file.delete.delay.ms` has no effect: no reader keeps a file open, so files are removed at once.
        with suppress(OSError):  # The next call tries again to remove what is left.
            for _ in range(count):
                doomed.append(self.segments[0].set_aside())
                del self.segments[0]
                self._open_files.at("retention.delete")
        self.places.forget_below(self.start_address)
        self.directory_changed = True
        self._remove_later(doomed)

    def _remove_later(self, paths: list[str]) -> None:
        if self.folder is not None:
            self.folder.remove_later(paths)
            return
        for path in paths:
            with suppress(OSError):
                os.unlink(path)

    # Swapping in a cleaned segment.

    def begin_swap(self, base_offset: int, end_offset: int) -> bool:
        """Whether these are still closed segments of the log. Then they stay, until `end_swap` or `cancel_swap`."""
        bases = [segment.base_offset for segment in self.segments]
        if self.is_forgotten or self._is_swapping or base_offset not in bases or end_offset not in bases:
            return False
        self._is_swapping = True
        return True

    def cancel_swap(self) -> None:
        self._is_swapping = False

    def end_swap(self, base_offset: int, end_offset: int, cleaned: Segment) -> None:
        """Put the cleaned segment, whose files are complete under `.swap`, in the place of the others."""
        assert not self.is_forgotten, f"{self.directory} is deleted"
        self._is_swapping = False
        segments = self.segments
        first, after = segments.index_of(base_offset), segments.index_of(end_offset)
        old = segments[first:after]
        # The cleaned segment takes over the names of the indexes of the first old one.
        doomed = [segment.set_aside(keep_indexes=segment is old[0]) for segment in old]
        self._open_files.at("clean.install")
        cleaned.change_suffix(SWAP, "")
        segments[first:after] = [cleaned]
        self._move_addresses(first, old)
        self.directory_changed = True
        with suppress(OSError):  # The next start makes the aborted-transaction index again.
            self.snapshots.check_txns_again(partial(encode_txn_check, segments))
        self._remove_later(doomed)

    def _move_addresses(self, index: int, old: list[Segment]) -> None:
        """The segments after the cleaned one keep their addresses; it and those before it move up to them."""
        begin = old[0].address
        end = address = old[-1].address + old[-1].size
        for segment in reversed(self.segments[: index + 1]):
            address -= segment.size
            segment.address = address
        moved_by = self.segments[index].address - begin

        def moved(address: int) -> int:
            # An address within the cleaned segment becomes its beginning: it is safe to sync too much.
            return address if address >= end else min(address, begin) + moved_by

        self.synced_address = moved(self.synced_address)
        self.recovery_address = moved(self.recovery_address)
        self.snapshot_address = moved(self.snapshot_address)
        self.places.forget_below(end)


class _FencedFiles(LogFiles):
    """No files: another handle has them."""

    __slots__ = ()

    def __init__(self, directory: str, open_files: OpenFiles) -> None:
        super().__init__(directory, open_files, [], [])
        self.is_forgotten = True

    def check_there(self) -> None:
        raise LogFenced(f"another leader has taken over {self.directory}")


_NEWEST_BATCHES = 256
_READ_ENDS = 64


class Places:
    """Addresses of batches that the next reads are likely to ask for, so that they need no index.

    `offsets` and `addresses` are those of the newest batches, for consumers at the end of the log. Beside them, the
    places where reads ended are remembered, for consumers that continue there.
    """

    __slots__ = ("_read_ends", "addresses", "offsets")

    def __init__(self) -> None:
        # An append adds to both directly.
        self.offsets = array("q")
        self.addresses = array("q")
        self._read_ends: dict[int, int] = {}

    def trim(self) -> None:
        if len(self.offsets) > 2 * _NEWEST_BATCHES:
            del self.offsets[:-_NEWEST_BATCHES]
            del self.addresses[:-_NEWEST_BATCHES]

    def find(self, offset: int) -> int | None:
        """The address of the batch that contains `offset`, which is below the end of the log."""
        address = self._read_ends.get(offset)
        if address is None and self.offsets and offset >= self.offsets[0]:
            return self.addresses[bisect_right(self.offsets, offset) - 1]
        return address

    def is_new(self, address: int) -> bool:
        """Whether `address` is among the newest batches."""
        return bool(self.addresses) and address >= self.addresses[0]

    def last_before(self, limit: int) -> int:
        """The greatest address of a new batch that is not above `limit`. Needs one that is not."""
        return self.addresses[bisect_right(self.addresses, limit) - 1]

    def remember(self, offset: int, address: int) -> None:
        """A read ended here, and its consumer will ask for `offset` next."""
        if len(self._read_ends) >= _READ_ENDS:
            del self._read_ends[next(iter(self._read_ends))]
        self._read_ends[offset] = address

    def forget_below(self, address: int) -> None:
        """The batches below `address` are gone, or have moved."""
        self._read_ends.clear()
        below = bisect_left(self.addresses, address)
        del self.offsets[:below]
        del self.addresses[:below]
