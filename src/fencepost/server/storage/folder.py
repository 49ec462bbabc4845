"""The data folder of a broker: its lock, its logs, its metadata, and when they are on disk.

    .lock                                held while a broker runs; its pid inside
    meta.properties                      whose folder this is (Kafka's layout)
    fencepost.metadata                   the cluster's document (topics and settings), opaque here
    .kafka_cleanshutdown                 there while no broker runs, if the last one stopped in order: every
                                         log's end offset and size
    boot-id                              in which boot of the machine the logs were written
    recovery-point-offset-checkpoint     how far every log was synced together with its indexes
    <topic>-<partition>/                 one log; renamed to end in `-delete` while it is removed

Slow work (fsync, removing files) goes to `defer(work, done)`, which calls `work()` in another thread and
then `done(error)` in this one. Everything else here runs in one thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock

from fencepost.machines.log import Log, LogConfig, LogTailUnknown, StorageFailed
from fencepost.server.storage.checkpoints import (
    RECOVERY_POINTS_NAME,
    TOPIC_ID_NAME,
    decode_checkpoint,
    decode_topic_id,
    encode_checkpoint,
    read_file,
    replace_file,
)
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.open_files import At, OpenFiles, PWrite, go_on
from fencepost.server.storage.recovery import Report, Trust, open_file_log
from fencepost.server.storage.segment import Segment
from fencepost.server.storage.syncing import FolderSync, sync_directory, sync_file

LOCK_NAME = ".lock"
META_NAME = "meta.properties"
METADATA_NAME = "fencepost.metadata"
CLEAN_NAME = ".kafka_cleanshutdown"
BOOT_NAME = "boot-id"

MAX_OPEN_SEGMENTS = 256

_LOG_DIRECTORY = re.compile(r".+-\d+")
_LEFT_TO_DELETE = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")

Done = Callable[[BaseException | None], None]
Defer = Callable[[Callable[[], None], Done], None]
Stop = Callable[[LogTailUnknown], None]


class DataFolderUnusable(Exception):
    """The broker cannot start on this folder."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}\n\nhint: {hint}")
        self.problem = problem
        self.hint = hint


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


def current_boot() -> str | None:
    """Which run of the kernel this is; None where the kernel does not tell, and every start is a new boot."""
    content = read_file("/proc/sys/kernel/random/boot_id")
    return content.decode().strip() if content else None


class DataFolder:
    """See `machines.log.Storage`.

    `flush`: whether `sync` waits for the disk. `report`: gets one line for everything that recovery changed.
    `stop`: gets LogTailUnknown when a sync failed, and must end the process. `at`: a crash hook for tests,
    called with "segment.roll", "index.write", "snapshot.write" and "metadata.save" in the middle of each.
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
        self._root_changed = False
        self._closed = False
        # Group commit: who waits for the next sync, and the logs that they want in it.
        self._syncing = False
        self._waiting: list[Callable[[], None]] = []
        self._wanted: dict[FileLog, None] = {}
        # Recovery points: the durable ones, and logs whose snapshot waits to be made durable.
        self._checkpointing = False
        self._points_changed = False
        self._points_lock = Lock()  # The file is written by the other thread, and at the end by this one.
        self._to_checkpoint: dict[FileLog, None] = {}

        self._make_folder()
        self._lock = self._take_lock()
        try:
            self._open_folder(cluster_id, node_id, boot())
        except BaseException:
            os.close(self._lock)
            raise

    def _make_folder(self) -> None:
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise DataFolderUnusable(
                f"the data folder {self.path} cannot be made: {error.strerror}",
                "choose a folder that this user may write to with --data",
            ) from error

    def _take_lock(self) -> int:
        path = f"{self.path}/{LOCK_NAME}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataFolderUnusable(
                f"the data folder {self.path} cannot be written: {error.strerror}",
                "choose a folder that this user may write to with --data",
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise DataFolderUnusable(
                f"the data folder {self.path} is in use by process {pid}",
                "stop that broker, or give this one another folder with --data",
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def _open_folder(self, cluster_id: str | None, node_id: int, boot: str | None) -> None:
        self.cluster_id = self._open_meta(cluster_id, node_id)
        self._recovery_points = _decode_recovery_points(read_file(f"{self.path}/{RECOVERY_POINTS_NAME}"))
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

    def _open_meta(self, cluster_id: str | None, node_id: int) -> str:
        path = f"{self.path}/{META_NAME}"
        content = read_file(path)
        if content is None:
            cluster_id = cluster_id or urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            self._write_meta(cluster_id, node_id)
            return cluster_id
        known = dict(line.split("=", 1) for line in content.decode().splitlines() if "=" in line)
        if known.get("version") != "1" or "cluster.id" not in known:
            raise DataFolderUnusable(
                f"{path} has version {known.get('version')}, expected 1",
                "this folder was not made by this program; give the broker another one with --data",
            )
        return known["cluster.id"]

    def _write_meta(self, cluster_id: str, node_id: int) -> None:
        content = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        replace_file(f"{self.path}/{META_NAME}", content.encode(), durable=True)

    def note_cluster(self, cluster_id: str, node_id: int = 1) -> None:
        """Have `meta.properties` say what the cluster's document says; the document decides."""
        if cluster_id != self.cluster_id:
            self._write_meta(cluster_id, node_id)
            self.cluster_id = cluster_id

    def _note_boot(self) -> None:
        """Once no log is left that an earlier boot wrote and nobody has checked, note this boot."""
        if not self._unopened and self._boot is not None:
            path = f"{self.path}/{BOOT_NAME}"
            if read_file(path) != self._boot.encode():
                replace_file(path, self._boot.encode(), durable=False)

    # Logs.

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> FileLog:
        name = f"{topic}-{partition}"
        assert name not in self._logs, f"{name} is open already"
        assert "/" not in name
        directory = f"{self.path}/{name}"
        if name in self._unopened:
            found = decode_topic_id(read_file(f"{directory}/{TOPIC_ID_NAME}"))
            if found is not None and found != topic_id:
                # Its topic was deleted, and the process stopped before the files were.
                self._report(f"{name}: removed the files of a deleted topic with the same name")
                self._delete_directory(name, topic, partition)
        point = self._recovery_points.get(name)
        clean_end = self._clean_ends.pop(name, None)
        log = open_file_log(directory, topic_id, config, self._files, self._trust, clean_end, point, self._report)
        log.on_snapshot = self._on_snapshot
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
            log.on_snapshot = None
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
        self._recovery_points.pop(name, None)
        self._clean_ends.pop(name, None)
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
        if name in self._unopened:
            self._unopened.discard(name)
            self._note_boot()

    def _remove_later(self, name: str) -> None:
        # What cannot be removed now is tried again at the next start.
        self._defer(lambda: shutil.rmtree(f"{self.path}/{name}", ignore_errors=True), lambda error: None)

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
        directories: list[str] = []
        try:
            for log in wanted:
                if self._logs.get(os.path.basename(log.directory)) is log:  # It may be deleted by now.
                    for segment in log.segments_past(log.synced_address):
                        self._want_synced(segment, fds)
                    directories += self._changed_directories(log)
        except OSError as error:
            for fd in fds:
                os.close(fd)
            self._stop(LogTailUnknown(f"cannot sync: {error}"))
            return

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._stop(LogTailUnknown(f"sync failed: {error}"))
                return
            for log, end_address in ends:
                log.synced_address = max(log.synced_address, end_address)
            try:
                for then in waiting:
                    then()
            finally:
                self._syncing = False
                if self._waiting and not self._closed:
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

    def _on_snapshot(self, log: FileLog, rolled: bool) -> None:
        """A snapshot begins what recovery after a power loss must check: make all before it durable."""
        if not (self._flush or rolled) or self._closed:
            return
        self._to_checkpoint[log] = None
        if not self._checkpointing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        logs, self._to_checkpoint = list(self._to_checkpoint), {}
        self._checkpointing = True
        self._points_changed = False
        points = {os.path.basename(log.directory): log.end_offset for log in logs}
        ends = [(log, log.end_offset, log.end_address) for log in logs]
        files: list[str] = []
        directories: list[str] = []
        for log in logs:
            files += _files_of(log)
            directories += [log.directory, self.path]
        content = _encode_recovery_points({**self._recovery_points, **points})

        def work() -> None:
            for path in files:
                sync_file(path)
            for path in dict.fromkeys(directories):
                sync_directory(path)
            # On a full disk the old points still hold, and the next ones are tried again.
            with suppress(OSError), self._points_lock:
                if not self._closed:
                    replace_file(f"{self.path}/{RECOVERY_POINTS_NAME}", content, durable=True)

        def done(error: BaseException | None) -> None:
            self._checkpointing = False
            if error is not None:
                self._stop(LogTailUnknown(f"sync failed: {error}"))
                return
            for log, end_offset, end_address in ends:
                name = os.path.basename(log.directory)
                if self._logs.get(name) is log:
                    self._recovery_points[name] = end_offset
                    log.recovery_point = end_offset
                    log.recovery_address = end_address
                    log.synced_address = max(log.synced_address, end_address)
            if (self._to_checkpoint or self._points_changed) and not self._closed:
                self._checkpoint()

        self._defer(work, done)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        files: list[str] = []
        directories = {self.path}
        for name, log in self._logs.items():
            log.close()
            if log.is_changed():
                files += _files_of(log)
                directories.add(log.directory)
            self._recovery_points[name] = log.end_offset
        waiting, self._waiting = self._waiting, []
        try:
            self._disk.sync_paths(files, directories)
            for then in waiting:
                then()
            content = _encode_recovery_points(self._recovery_points)
            with self._points_lock:
                replace_file(f"{self.path}/{RECOVERY_POINTS_NAME}", content, durable=True)
            if not self._unopened or self._trust is Trust.CLEAN:
                ends = {name: log.end() for name, log in self._logs.items()}
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
            for log in self._logs.values():
                log.forget_files()
                log.on_snapshot = None
            os.close(self._lock)


def _files_of(log: FileLog) -> list[str]:
    """Every file that a recovery point vouches for and that may have bytes in memory only."""
    files = log.snapshots.paths()
    for segment in log.segments_past(min(log.recovery_address, log.end_address - 1)):
        files += [segment.path, segment.offsets.path, segment.times.path, segment.txns.path]
    return files


def _encode_recovery_points(points: dict[str, int]) -> bytes:
    lines = []
    for name, offset in sorted(points.items()):
        topic, _, partition = name.rpartition("-")
        lines.append(f"{topic} {partition} {offset}")
    return encode_checkpoint(lines)


def _decode_recovery_points(content: bytes | None) -> dict[str, int]:
    try:
        lines = decode_checkpoint(content) or []
        return {f"{topic}-{partition}": int(offset) for topic, partition, offset in lines}
    except ValueError:
        return {}


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
