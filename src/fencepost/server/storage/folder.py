"""The data folder of a broker: its lock, its logs, its metadata, and when they are on disk.

    .lock                                held while a broker runs; its pid inside
    meta.properties                      whose folder this is (Kafka's layout)
    fencepost.metadata                   the cluster's document (topics and settings), opaque here
    .kafka_cleanshutdown                 there while no broker runs, if the last one stopped in order: every
                                         log's end offset and size
    boot-id                              in which boot of the machine the logs were written
    recovery-point-offset-checkpoint     how far every log was synced together with its indexes
    log-start-offset-checkpoint          where logs begin, of which records were deleted up to within a segment
    cleaner-offset-checkpoint            how far compacted logs are clean
    <topic>-<partition>/                 one log; renamed to end in `-delete` while it is removed

Slow work (fsync, removing files) goes to `defer(work, done)`, which calls `work()` in another thread and
then `done(error)` in this one. Everything else here runs in one thread.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock

from fencepost.machines.log.interface import Log, LogConfig, LogTailUnknown, StorageFailed
from fencepost.server.storage.checkpoints import (
    CLEAN_OFFSETS_NAME,
    EPOCHS_NAME,
    START_OFFSETS_NAME,
    TOPIC_ID_NAME,
    OffsetsFile,
    decode_checkpoint,
    decode_topic_id,
    encode_checkpoint,
    read_file,
    replace_file,
)
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.identity import current_boot, make_folder, open_meta, take_lock, write_meta
from fencepost.server.storage.open_files import At, OpenFiles, PWrite, go_on
from fencepost.server.storage.recovery import Report, Trust, open_file_log
from fencepost.server.storage.recovery_points import RecoveryPoints
from fencepost.server.storage.rewriting import FileRewrite
from fencepost.server.storage.segment import Segment
from fencepost.server.storage.segmented_log import SegmentedLog
from fencepost.server.storage.syncing import FolderSync, NotOpened, sync_directory, sync_file

METADATA_NAME = "fencepost.metadata"
CLEAN_NAME = ".kafka_cleanshutdown"
BOOT_NAME = "boot-id"

MAX_OPEN_SEGMENTS = 256

_LOG_DIRECTORY = re.compile(r".+-\d+")
_LEFT_TO_DELETE = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")

Done = Callable[[BaseException | None], None]
Defer = Callable[[Callable[[], None], Done], None]
Stop = Callable[[LogTailUnknown], None]


def run_at_once(work: Callable[[], None], done: Done) -> None:
    """A `Defer` for programs without an event loop."""
    try:
        work()
    except Exception as error:
        done(error)
    else:
        done(None)


def _raise(error: LogTailUnknown) -> None:
    raise error


class DataFolder:
    """See `machines.log.interface.Storage`.

    `flush`: whether `sync` waits for the disk. `report`: gets one line for everything that recovery changed.
    `stop`: gets LogTailUnknown when a sync failed, and must end the process. `at`: a crash hook for tests,
    called with "segment.roll", "index.write", "snapshot.write", "metadata.save", "retention.delete",
    "clean.swap.before", "clean.swap.after" and "clean.install" in the middle of each.
    """

    def __init__(
        self,
        path: str,
        *,
        flush: bool = False,
        defer: Defer = run_at_once,
        stop: Stop = _raise,
        report: Report = lambda line: None,
        at: At = go_on,
        cluster_id: str | None = None,
        node_id: int = 1,
        max_open_segments: int | None = None,
        pwrite: PWrite = os.pwrite,
        boot: Callable[[], str | None] = current_boot,
    ) -> None:
        self.path = os.path.abspath(path)
        self._flush = flush
        self._defer = defer
        self._stop = stop
        self._report = report
        self._files = OpenFiles(max_open_segments or _open_segments_limit(), pwrite, at)
        self._disk = FolderSync(self.path)
        self._logs: dict[str, FileLog] = {}
        self._closed = False
        # Group commit: who waits for the next sync, and the logs that they want in it.
        self._syncing = False
        self._waiting: list[Callable[[], None]] = []
        self._wanted: dict[FileLog, None] = {}
        # Recovery points: the durable ones, and logs whose snapshot waits to be made durable.
        self._checkpointing = False
        self._points_changed = False
        self._to_checkpoint: dict[FileLog, None] = {}
        # Directories to remove, one by one: commits that wait for the disk must not queue behind thousands.
        self._doomed: deque[str] = deque()
        self._is_removing = False
        # Cleaned segments that are being synced and swapped in. Once the folder is closed, none is any more.
        self._swaps: dict[FileRewrite, None] = {}
        self._swap_lock = Lock()

        make_folder(self.path)
        self._lock = take_lock(self.path)
        try:
            self._open_folder(cluster_id, node_id, boot())
        except BaseException:
            os.close(self._lock)
            raise

    def _open_folder(self, cluster_id: str | None, node_id: int, boot: str | None) -> None:
        self.cluster_id = open_meta(self.path, cluster_id, node_id)
        self._recovery_points = RecoveryPoints(self.path)
        self._start_offsets = OffsetsFile(f"{self.path}/{START_OFFSETS_NAME}")
        self._clean_offsets = OffsetsFile(f"{self.path}/{CLEAN_OFFSETS_NAME}")
        names = [entry.name for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
        self._left_to_delete = [name for name in names if _LEFT_TO_DELETE.fullmatch(name)]
        self._unopened = {
            name
            for name in names
            if _LOG_DIRECTORY.fullmatch(name) and os.path.exists(f"{self.path}/{name}/{TOPIC_ID_NAME}")
        }
        self._boot = boot
        boot_before = read_file(f"{self.path}/{BOOT_NAME}")
        self._clean_ends = _decode_clean_ends(read_file(f"{self.path}/{CLEAN_NAME}"))
        if os.path.exists(f"{self.path}/{CLEAN_NAME}"):
            self._trust = Trust.CLEAN
            os.unlink(f"{self.path}/{CLEAN_NAME}")
            # If it came back after a power loss, it would vouch for logs that were written since.
            sync_directory(self.path)
        elif boot is not None and boot_before == boot.encode():
            self._trust = Trust.SAME_BOOT
        else:
            self._trust = Trust.OTHER_BOOT
        # Where the kernel does not tell one boot from another, it was more likely the process that ended.
        self.may_have_lost_appends = self._trust is Trust.OTHER_BOOT and boot is not None and boot_before is not None
        self._note_boot()
        for name in self._left_to_delete:
            self._remove_later(name)

    def note_cluster(self, cluster_id: str, node_id: int = 1) -> None:
        """Have `meta.properties` say what the cluster's document says; the document decides."""
        if cluster_id != self.cluster_id:
            write_meta(self.path, cluster_id, node_id)
            self.cluster_id = cluster_id

    def note_recovered(self) -> None:
        self.may_have_lost_appends = False
        self._note_boot()

    def _note_boot(self) -> None:
        """Once no log is left that an earlier boot wrote and nobody has checked, note this boot."""
        if not self._unopened and not self.may_have_lost_appends and self._boot is not None:
            path = f"{self.path}/{BOOT_NAME}"
            if read_file(path) != self._boot.encode():
                replace_file(path, self._boot.encode(), durable=True)

    # Logs.

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> FileLog:
        name = f"{topic}-{partition}"
        assert name not in self._logs, f"{name} is open already"
        assert "/" not in name
        directory = f"{self.path}/{name}"
        try:
            found = decode_topic_id(read_file(f"{directory}/{TOPIC_ID_NAME}"))
            if found is not None and found != topic_id:
                # Its topic was deleted, and its files were not: the process stopped before, or the disk refused.
                self._report(f"{name}: removed the files of a deleted topic with the same name")
                self._delete_directory(name, topic, partition)
            if name not in self._unopened:
                self._forget_deleted(name)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        point = self._recovery_points.get(name)
        clean_end = self._clean_ends.pop(name, None)
        start = self._start_offsets.get(name)
        log = open_file_log(
            directory, topic_id, config, self._files, self._trust, clean_end, point, start, self._report
        )
        clean_offset = self._clean_offsets.get(name)
        log.clean_offset = clean_offset if clean_offset <= log.end_offset else 0
        log.owner = self
        self._logs[name] = log
        if name in self._unopened:
            self._unopened.discard(name)
            self._note_boot()
        return log

    def delete_log(self, topic: str, partition: int) -> None:
        name = f"{topic}-{partition}"
        log = self._logs.pop(name, None)
        if log is not None:
            log.forget_files()
            log.owner = None
            self._to_checkpoint.pop(log, None)
        self._delete_directory(name, topic, partition)
        # A recovery point must not vouch for a later log of the same name.
        self._points_changed = True
        if not self._checkpointing:
            self._checkpoint()

    def strays(self) -> list[str]:
        """Directories of logs that nobody has opened: of topics that the metadata does not know any more."""
        return sorted(self._unopened)

    def delete_strays(self) -> None:
        for name in self.strays():
            topic, _, partition = name.rpartition("-")
            self._delete_directory(name, topic, int(partition))

    def _delete_directory(self, name: str, topic: str, partition: int) -> None:
        # First of all: whatever the disk refuses, the next log of this name must not find these files.
        suffix = f"-{partition}.{uuid.uuid4().hex}-delete"
        doomed = topic[: 255 - len(suffix)] + suffix
        try:
            os.rename(f"{self.path}/{name}", f"{self.path}/{doomed}")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageFailed(str(error)) from error
        else:
            self._remove_later(doomed)
        self._clean_ends.pop(name, None)
        self._recovery_points.forget(name)
        self._start_offsets.forget(name)
        self._clean_offsets.forget(name)
        if name in self._unopened:
            self._unopened.discard(name)
            self._note_boot()

    def _forget_deleted(self, name: str) -> None:
        """What is noted of a deleted log would hide the beginning of the next one of its name, or vouch for it."""
        self._start_offsets.forget_for_good(name)
        self._clean_offsets.forget_for_good(name)
        self._recovery_points.forget_for_good(name)

    def _remove_later(self, name: str) -> None:
        self._doomed.append(name)
        if not self._is_removing:
            self._remove_next()

    def _remove_next(self) -> None:
        # What cannot be removed now, or not any more, is tried again at the next start.
        path = f"{self.path}/{self._doomed.popleft()}"
        self._is_removing = True

        def done(_: BaseException | None) -> None:
            self._is_removing = False
            if self._doomed and not self._closed:
                self._remove_next()

        self._defer(lambda: shutil.rmtree(path, ignore_errors=True), done)

    # The cluster's document.

    def load_metadata(self) -> bytes | None:
        return read_file(f"{self.path}/{METADATA_NAME}")

    def save_metadata(self, document: bytes) -> None:
        try:
            at_half = partial(self._files.at, "metadata.save")
            replace_file(f"{self.path}/{METADATA_NAME}", document, durable=True, before=at_half)
        except OSError as error:
            raise StorageFailed(str(error)) from error

    # Durability.

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        if not self._flush:
            then()
            return
        for log in logs:
            assert isinstance(log, FileLog)
            self._wanted[log] = None
        self._waiting.append(then)
        if not self._syncing:
            self._sync_group()

    def _sync_group(self) -> None:
        """One sync for all that wait now; whoever comes meanwhile is in the next."""
        waiting, self._waiting = self._waiting, []
        wanted, self._wanted = self._wanted, {}
        self._syncing = True
        ends = [(log, log.end_address) for log in wanted]
        fds: list[int] = []
        directories: list[int] = []
        try:
            changed: dict[str, None] = {}
            for log in wanted:
                if self._logs.get(os.path.basename(log.directory)) is log:  # It may be deleted by now.
                    for segment in log.segments_past(log.synced_address):
                        self._want_synced(segment, fds)
                    changed.update(dict.fromkeys(self._changed_directories(log)))
            for path in changed:
                self._want_names_synced(path, fds, directories)
        except OSError as error:
            for fd in fds + directories:
                os.close(fd)
            self._stop(LogTailUnknown(f"cannot sync: {error}"))
            return

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._stop(LogTailUnknown(f"sync failed: {error}"))
                return
            for log, end_address in ends:
                log.synced_address = max(log.synced_address, end_address)
            is_known = True
            try:
                _call_all(waiting)
            except LogTailUnknown as unknown:
                is_known = False
                self._stop(unknown)
            finally:
                self._syncing = not is_known  # Else nobody is answered any more.
                if is_known and self._waiting and not self._closed:
                    self._sync_group()

        self._defer(lambda: self._disk.sync_group(fds, directories), done)

    def _want_synced(self, segment: Segment, fds: list[int]) -> None:
        try:
            fds.append(self._files.duplicate(segment))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # Too few descriptors are left to hand all files to the other thread: this one waits for them.
            self._disk.sync_group(fds, [])
            fds.clear()
            os.fdatasync(self._files.open(segment))
            self._files.close(segment)

    def _want_names_synced(self, path: str, fds: list[int], directories: list[int]) -> None:
        try:
            directories.append(self._files.open_directory(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._disk.sync_group(fds, directories)
            fds.clear()
            directories.clear()
            directories.append(self._files.open_directory(path))

    def _changed_directories(self, log: FileLog) -> list[str]:
        """The directories with new names that `log` needs to be found; they count as synced from now."""
        changed = []
        if log.directory_changed:
            log.directory_changed = False
            changed.append(log.directory)
        if log.directory_created:
            log.directory_created = False
            changed.append(self.path)
        return changed

    # Recovery points.

    def snapshot_saved(self, log: SegmentedLog, rolled: bool) -> None:
        """A snapshot begins what recovery after a power loss must check: make all before it durable."""
        if not (self._flush or rolled) or self._closed:
            return
        assert isinstance(log, FileLog)
        self._to_checkpoint[log] = None
        if not self._checkpointing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        logs, self._to_checkpoint = list(self._to_checkpoint), {}
        self._checkpointing = True
        self._points_changed = False
        ends = [(log, log.end_offset, log.end_address) for log in logs]
        files: list[str] = []
        directories: list[str] = []
        for log in logs:
            files += _files_of(log)
            directories += [log.directory, self.path]

        def reached() -> dict[str, int]:
            names = {log: os.path.basename(log.directory) for log in logs}
            return {names[log]: end_offset for log, end_offset, _ in ends if self._logs.get(names[log]) is log}

        def work() -> None:
            for path in files:
                sync_file(path)
            for path in dict.fromkeys(directories):
                sync_directory(path)
            # On a full disk the old points still hold, and the next ones are tried again.
            with suppress(OSError):
                self._recovery_points.store(reached)

        def done(error: BaseException | None) -> None:
            self._checkpointing = False
            if error is not None and not isinstance(error, NotOpened):
                self._stop(LogTailUnknown(f"sync failed: {error}"))
                return
            # What could not be opened is on disk or not as before: its next snapshot brings the next checkpoint.
            for log, end_offset, end_address in ends if error is None else ():
                name = os.path.basename(log.directory)
                if self._logs.get(name) is log:
                    self._recovery_points.set(name, end_offset)
                    log.recovery_point = end_offset
                    log.recovery_address = end_address
                    log.synced_address = max(log.synced_address, end_address)
            if (self._to_checkpoint or self._points_changed) and not self._closed:
                self._checkpoint()

        self._defer(work, done)

    # Logs that get shorter. See `segmented_log.Owner`.

    def start_moved(self, log: SegmentedLog) -> None:
        self._start_offsets.set(os.path.basename(log.directory), log.start_offset)

    def clean_moved(self, log: SegmentedLog) -> None:
        with suppress(OSError):
            self._clean_offsets.set(os.path.basename(log.directory), log.clean_offset)

    def remove_later(self, paths: list[str]) -> None:
        def work() -> None:
            for path in paths:
                with suppress(OSError):  # The next start removes what is left.
                    os.unlink(path)

        self._defer(work, lambda error: None)

    def swap(self, rewrite: FileRewrite, done: Done) -> None:
        self._swaps[rewrite] = None

        def work() -> None:
            with self._swap_lock:
                if not self._closed:
                    rewrite.commit()

        def committed(error: BaseException | None) -> None:
            if rewrite not in self._swaps:
                return  # The folder was closed meanwhile.
            del self._swaps[rewrite]
            try:
                done(error)
            except OSError as error:
                self._stop(LogTailUnknown(f"a cleaned segment cannot take its place: {error}"))

        self._defer(work, committed)

    def close(self) -> None:
        if self._closed:
            return
        with self._swap_lock:
            self._closed = True
        files: list[str] = []
        directories = {self.path}
        swaps, self._swaps = self._swaps, {}
        for rewrite in swaps:
            if rewrite.is_committed:
                with suppress(OSError):  # The next start does the rest.
                    rewrite.install()
        vouched_for: list[str] = []
        for name, log in self._logs.items():
            if log.settle():
                vouched_for.append(name)
                self._recovery_points.set(name, log.end_offset)
            else:
                # Others of its indexes may have got further: the next start has to look.
                self._report(f"{name}: an index could not be written, it is made again at the next start")
            if log.is_changed():
                files += _files_of(log)
                directories.add(log.directory)
        waiting, self._waiting = self._waiting, []
        try:
            self._disk.sync_paths(files, directories)
            _call_all(waiting)
            self._recovery_points.store_last()
            if self._trust is Trust.CLEAN or not (self._unopened or self.may_have_lost_appends):
                ends = {name: self._logs[name].end() for name in vouched_for}
                content = _encode_clean_ends({**self._clean_ends, **ends})
                replace_file(f"{self.path}/{CLEAN_NAME}", content, durable=True)
        except OSError as error:
            # The next start recovers, as after a crash.
            self._report(f"the stop is not clean: {error}")
        finally:
            os.close(self._lock)

    def abandon(self) -> None:
        """Let go of the folder as kill -9 would: nothing more is written. For tests within one process."""
        if not self._closed:
            self._closed = True
            self._recovery_points.is_closed = True
            for log in self._logs.values():
                log.forget_files()
                log.owner = None
            os.close(self._lock)


def _files_of(log: FileLog) -> list[str]:
    """Every file that a recovery point vouches for and that may have bytes in memory only."""
    files = [f"{log.directory}/{name}" for name in (TOPIC_ID_NAME, EPOCHS_NAME)]
    files += log.snapshots.paths()
    for segment in log.segments_past(min(log.recovery_address, log.end_address - 1)):
        files += [segment.path, segment.offsets.path, segment.times.path, segment.txns.path]
    return files


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    """Each of them, whatever the others raise. Only an unknown tail ends it: nothing may be done after that."""
    failed: list[Exception] = []
    for callback in callbacks:
        try:
            callback()
        except LogTailUnknown:
            raise
        except Exception as error:
            failed.append(error)
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("after a sync", failed)


def _encode_clean_ends(ends: dict[str, tuple[int, int]]) -> bytes:
    return encode_checkpoint(f"{name} {end_offset} {size}" for name, (end_offset, size) in sorted(ends.items()))


def _decode_clean_ends(content: bytes | None) -> dict[str, tuple[int, int]]:
    try:
        lines = decode_checkpoint(content) or []
        return {name: (int(end_offset), int(size)) for name, end_offset, size in lines}
    except ValueError:
        return {}


def _open_segments_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_SEGMENTS if soft == resource.RLIM_INFINITY else max(16, min(MAX_OPEN_SEGMENTS, soft // 8))
