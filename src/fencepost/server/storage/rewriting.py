"""A cleaned segment that replaces others: it is written beside them, made durable, and swapped in.

    .cleaned    being written; a start removes it
    .swap       complete and on disk: from now on it is part of the log. A start removes those of the segments that it
                replaces which are still there, and gives it its final name

Its last batch ends where the last of the old segments ended (the cleaner always keeps a batch there, if necessary an
empty one), so the file itself shows which segments it replaces.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from fencepost.machines.log.interface import AbortedTxn, LogTailUnknown, StorageFailed
from fencepost.server.storage.heads import BadBatch, walk
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.segment import (
    CLEANED,
    DELETED,
    SCAN_CHUNK_BYTES,
    SWAP,
    Segment,
)
from fencepost.server.storage.segment_indexes import MAX_PENDING_ENTRIES, SUFFIXES
from fencepost.server.storage.syncing import Defer, Done, Stop, sync_directory, sync_file

if TYPE_CHECKING:
    from fencepost.server.storage.log_files import LogFiles


_BUFFER_BYTES = 64 << 10


class FileRewrite:
    """See `machines.log.interface.Rewrite`. Only `commit` runs in another thread."""

    def __init__(
        self, log: LogFiles, open_files: OpenFiles, base_offset: int, end_offset: int, index_interval_bytes: int
    ) -> None:
        self.is_committed = False
        self._log = log
        self._open_files = open_files
        self._base_offset = base_offset
        self._end_offset = end_offset
        self._index_interval_bytes = index_interval_bytes
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._is_over = False
        self._segment = Segment(open_files, log.directory, base_offset, 0, 0, CLEANED)
        self._segment.remove_files()
        self._segment.create_files()

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        segment = self._segment
        segment.indexes.note(
            (segment.size, len(batch), 0, last_offset, max_timestamp, 0, b"", 0), self._index_interval_bytes
        )
        segment.size += len(batch)
        self._buffer.append(batch)
        self._buffered += len(batch)
        if self._buffered >= _BUFFER_BYTES:
            self._flush()

    def append_aborted(self, entry: AbortedTxn) -> None:
        self._segment.indexes.txns.pending.append((0, *entry))

    def _flush(self) -> None:
        data = b"".join(self._buffer)
        segment = self._segment
        if self._log.is_forgotten:
            raise StorageFailed(f"{self._log.directory} is deleted")
        try:
            written = self._open_files.pwrite(self._open_files.open(segment), data, segment.size - self._buffered)
            if written != len(data):
                raise OSError(f"short write: {written} of {len(data)} bytes to {segment.path}")
            if any(
                len(index.pending) >= MAX_PENDING_ENTRIES for index in (segment.indexes.offsets, segment.indexes.txns)
            ):
                segment.indexes.flush()
        except OSError as error:
            raise StorageFailed(str(error)) from error
        self._buffer.clear()
        self._buffered = 0

    def finish(self, then: Callable[[bool], None]) -> None:
        log = self._log
        try:
            self._flush()
            self._segment.indexes.seal()
        except (OSError, StorageFailed):
            self.abandon()
            then(False)
            return
        if not log.begin_swap(self._base_offset, self._end_offset):
            self.abandon()
            then(False)
            return
        self._is_over = True

        def done(error: BaseException | None) -> None:
            is_installed = error is None and self.is_committed and self.install()
            if not is_installed:
                log.cancel_swap()
                self._remove()
            then(is_installed)

        if log.folder is not None:
            log.folder.swap(self, done)
        else:
            self.commit()
            done(None)

    def commit(self) -> None:
        """Sync the files, rename them to `.swap`, sync the names. Raises OSError, and then the swap does not happen."""
        if self._log.is_forgotten:
            return
        for path in self._segment.paths():
            sync_file(path)
        self._open_files.at("clean.swap.before")
        self._segment.change_suffix(CLEANED, SWAP)
        self.is_committed = True
        self._open_files.at("clean.swap.after")
        sync_directory(self._log.directory)

    def install(self) -> bool:
        """Swap the segment in, unless the log was deleted meanwhile: a new log may have its name now."""
        if self._log.is_forgotten:
            return False
        self._log.end_swap(self._base_offset, self._end_offset, self._segment)
        return True

    @property
    def log_name(self) -> str:
        return self._log.name

    def abandon(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._remove()

    def _remove(self) -> None:
        self._buffer.clear()
        self._segment.close_file()
        if not self._log.is_forgotten:
            with suppress(OSError):
                self._segment.remove_files()


def finish_swaps(directory: str, names: set[str], report: Callable[[str], None]) -> set[str]:
    """Finish the swaps, and remove the temporary files, that the last process left.

    `names` are the files in the directory; return those that are there afterwards.
    """
    unfinished = [name for name in names if name.endswith((CLEANED, SWAP, DELETED))]
    if not unfinished:
        return names
    for name in sorted(unfinished):
        if name.endswith(".log" + SWAP):
            _finish_swap(directory, name, names)
            report(f"{name.removesuffix(SWAP)} was cleaned: took the place of the segments that it was made from")
    for name in unfinished:
        with suppress(FileNotFoundError):
            os.unlink(f"{directory}/{name}")
    return set(os.listdir(directory))


def _finish_swap(directory: str, name: str, names: set[str]) -> None:
    stem = name[:20]
    last = f"{last_offset_of(f'{directory}/{name}'):020d}"
    for other in sorted(names):
        if len(other) == 24 and other.endswith(".log") and stem <= other[:20] <= last:
            # The names of the first segment's indexes may belong to the cleaned segment already; if not, see below.
            for suffix in ("log",) if other[:20] == stem else ("log", *SUFFIXES):
                with suppress(FileNotFoundError):
                    os.unlink(f"{directory}/{other[:20]}.{suffix}")
    for suffix in (*SUFFIXES, "log"):
        with suppress(FileNotFoundError):
            os.rename(f"{directory}/{stem}.{suffix}{SWAP}", f"{directory}/{stem}.{suffix}")


def last_offset_of(path: str) -> int:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        last_offset = -1
        try:
            for placed in walk(lambda at, length: os.pread(file.fileno(), length, at), 0, size, SCAN_CHUNK_BYTES):
                last_offset = placed[3]
        except BadBatch as bad:
            raise StorageFailed(f"{path}: {bad}") from bad
    return last_offset


class Swaps:
    """Cleaned segments that are being synced and swapped in. Once the folder is closed, no swap is committed."""

    def __init__(self, defer: Defer, stop: Stop) -> None:
        self._defer = defer
        self._stop = stop
        self._running: dict[FileRewrite, None] = {}
        self._lock = Lock()
        self._is_closed = False

    def begin(self, rewrite: FileRewrite, done: Done) -> None:
        """Call `rewrite.commit()` in another thread, then `done` in this one."""
        self._running[rewrite] = None

        def work() -> None:
            with self._lock:
                if not self._is_closed:
                    rewrite.commit()

        def committed(error: BaseException | None) -> None:
            if rewrite not in self._running:
                return  # The folder was closed meanwhile.
            del self._running[rewrite]
            try:
                done(error)
            except OSError as error:
                self._stop(LogTailUnknown(f"a cleaned segment cannot take its place: {error}"))

        self._defer(work, committed)

    def close(self) -> None:
        """Returns when no commit is under way, and none will be."""
        with self._lock:
            self._is_closed = True

    def abandon(self) -> None:
        self._is_closed = True

    def install(self) -> set[str]:
        """Put the cleaned segments that are on disk in their place; return the logs in which that failed."""
        running, self._running = self._running, {}
        failed = set()
        for rewrite in running:
            try:
                if rewrite.is_committed:
                    rewrite.install()
            except OSError:
                failed.add(rewrite.log_name)
        return failed
