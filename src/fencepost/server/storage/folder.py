"""The data folder of a broker: its lock, its logs, its metadata, and when they are on disk.

    .lock                                held while a broker runs; its pid inside, empty after a stop
    meta.properties                      the cluster that the folder belongs to (Kafka's layout)
    fencepost.metadata                   the cluster's document: topics and settings (document.py)
    metadata-revision                    how often the document was saved
    .kafka_cleanshutdown, boot-id        how the last process ended, with `clean-stop-checksums`: `last_stop.py`
    logs-of-this-boot                    the logs that have files: `offset_files.py`
    *-offset-checkpoint                  one offset for each log: `offset_files.py`
    <topic>-<partition>/                 one log; renamed to end in `-delete` while it is removed: `deleting.py`

Slow work goes to another thread: `syncing.py`. Everything else here runs in one thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from fencepost.machines.log.interface import Log, LogConfig, LogTailUnknown, StorageFailed
from fencepost.open_files import share_of_open_files
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.server.storage.checkpoints import (
    CLEAN_OFFSETS_NAME,
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    TOPIC_ID_NAME,
    NotDurable,
    decode_topic_id,
    encode_leader_epochs,
    read_file,
)
from fencepost.server.storage.deleting import LogDeletion
from fencepost.server.storage.document import Document
from fencepost.server.storage.file_log import FileLog, hand_over
from fencepost.server.storage.group_sync import Checkpointing, GroupSync, call_all
from fencepost.server.storage.identity import (
    current_boot,
    drop_lock,
    make_folder,
    open_meta,
    refuse_later_checkpoints,
    take_lock,
    write_meta,
)
from fencepost.server.storage.last_stop import CLEAN_NAME, CleanEnd, LastStop, Trust, checksum, write_clean_stop
from fencepost.server.storage.losses import Losses
from fencepost.server.storage.missing import LogsIn, Survey
from fencepost.server.storage.offset_files import BegunLogs, OffsetsFile, RecoveryPoints
from fencepost.server.storage.open_files import At, OpenFiles, PWrite, never_crash
from fencepost.server.storage.recovery import Report, open_file_log
from fencepost.server.storage.rewriting import FileRewrite, Swaps
from fencepost.server.storage.syncing import Defer, Done, FolderSync, Stop, run_at_once, sync_directory

MAX_OPEN_SEGMENTS = 256
CHECKED = (START_OFFSETS_NAME, CLEAN_OFFSETS_NAME)  # The clean stop notes their checksums.

_LOG_DIRECTORY = re.compile(r".+-\d+")


def _raise(error: LogTailUnknown) -> None:
    raise error


class DataFolder:
    """See `machines.log.interface.Storage`, and `log_files.LogFolder` for what its logs ask of it.

    `flush`: whether `sync` waits for the disk. `report`: gets one line for everything that recovery changed.
    `missing`: "refuse" raises DataMissing if the folder has less than its own records say (`missing.py`), "accept"
    reports it and goes on. `stop`: gets LogTailUnknown when a sync failed, and must end the process.
    `logs_in`: names and topic ids of the logs that the cluster's document has; without, nothing can be missing.
    `at`: a crash hook for tests, called with "segment.roll", "index.write", "snapshot.write", "metadata.save",
    "retention.delete", "clean.swap.before", "clean.swap.after" and "clean.install" in the middle of each.
    """

    def __init__(
        self,
        path: str,
        *,
        flush: bool = False,
        defer: Defer = run_at_once,
        stop: Stop = _raise,
        report: Report = lambda line: None,
        at: At = never_crash,
        missing: str = "refuse",
        logs_in: LogsIn | None = None,
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
        self._logs_in = logs_in
        most_open = max_open_segments or max(16, share_of_open_files(8, most=MAX_OPEN_SEGMENTS))
        self._open_files = OpenFiles(most_open, pwrite, at)
        self._disk = FolderSync(self.path)
        self._syncs = GroupSync(self.path, self._open_files, self._disk, defer, stop)
        self._logs: dict[str, FileLog] = {}
        self._is_closed = False
        self._swaps = Swaps(defer, stop)

        make_folder(self.path)
        self._lock = take_lock(self.path)
        try:
            self._open_folder(cluster_id, node_id, boot(), missing == "accept")
        except BaseException:
            drop_lock(self._lock)
            raise

    def _open_folder(self, cluster_id: str | None, node_id: int, boot: str | None, is_loss_accepted: bool) -> None:
        refuse_later_checkpoints(self.path)
        self.cluster_id = open_meta(self.path, cluster_id, node_id)
        last_stop = self._last_stop = LastStop(self.path, boot)
        self._recovery_points = RecoveryPoints(self.path, is_synced=last_stop.trust is Trust.CLEAN)
        changed = [name for name in CHECKED if last_stop.has_changed(name, read_file(f"{self.path}/{name}"))]
        self._start_offsets, self._clean_offsets = (
            OffsetsFile(f"{self.path}/{name}", is_ignored=name in changed) for name in CHECKED
        )
        self._checkpoints = Checkpointing(self.path, self._recovery_points, self._defer, self._stop)
        offset_files: list[OffsetsFile | RecoveryPoints] = [
            self._start_offsets,
            self._clean_offsets,
            self._recovery_points,
        ]
        self._deletion = LogDeletion(self.path, offset_files, self._defer)
        names = [entry.name for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
        self._unopened = {
            name
            for name in names
            if _LOG_DIRECTORY.fullmatch(name) and os.path.exists(f"{self.path}/{name}/{TOPIC_ID_NAME}")
        }
        for name, file in zip(
            (START_OFFSETS_NAME, CLEAN_OFFSETS_NAME, RECOVERY_POINTS_NAME), offset_files, strict=True
        ):
            if file.is_damaged:
                self._report(f"{name} is damaged, its offsets are not used")
        self._begun_logs = BegunLogs(self.path, boot)
        self._losses = Losses(self.path, is_loss_accepted, last_stop, self._recovery_points, self._disk, self._report)
        self._document = Document(self.path)
        survey = self._survey(changed)
        self._listed = survey.names  # Of each log, until it is opened.
        if survey.missing:
            self._losses.accept(survey)
            self._listed.clear()
        else:
            last_stop.begin()
        if self._older_copy is not None:
            strays = [self._deletion.keep(name) for name in sorted(self._unopened - survey.ends.keys())]
            self._unopened &= survey.ends.keys()
            sync_directory(self.path)  # Before the document is saved again, and the next start would remove them.
            self._losses.accept_older_copy(self._older_copy, strays)
        for name, offsets in zip(CHECKED, (self._start_offsets, self._clean_offsets), strict=True):
            if name in changed:
                self._report(f"{name} is not as the clean stop left it: not used")
                offsets.replace()
        if last_stop.is_damaged:
            self._report(f"{CLEAN_NAME} is not as the clean stop left it: the logs are checked as after a kill")
        if last_stop.trust is Trust.OTHER_BOOT:
            self._begun_logs.begin_anew()
        self.may_have_lost_appends = last_stop.may_have_lost_appends
        self._note_boot()
        self._deletion.remove_left_over(names)

    def _survey(self, changed: Sequence[str]) -> Survey:
        """Find missing data. Raises DataMissing, before anything has changed, unless the loss is accepted.

        `changed`: the files that are not as the clean stop left them.
        """
        document = self.load_metadata()
        self._older_copy: str | None = None
        if self._logs_in is not None and document is not None:
            self._older_copy = self._document.describe_older_copy()
            lines = [self._older_copy] if self._older_copy else []
            if START_OFFSETS_NAME in changed:
                line = "it is not as the clean stop left it, and without it, deleted records come back"
                lines.append(f"{START_OFFSETS_NAME}: {line}")
            logs = list(self._logs_in(document))
            survey = self._losses.look(lines, logs, self._start_offsets, self._begun_logs)
            self._begun_logs.keep(logs)
            return survey
        # With logs and without a document, the caller refuses the folder in any case.
        if self._logs_in is not None and not self._unopened:
            self._losses.look_for_document(self._document, self._begun_logs)
        return Survey([], {}, {})

    def _accept_found_loss(self, name: str, end_offset: int) -> None:
        self._losses.accept_found(name, end_offset)
        self.may_have_lost_appends = True

    def note_cluster(self, cluster_id: str, node_id: int = 1) -> None:
        """Have `meta.properties` say what the cluster's document says; the document decides."""
        if cluster_id != self.cluster_id:
            write_meta(self.path, cluster_id, node_id)
            self.cluster_id = cluster_id

    def note_recovered(self) -> None:
        self.may_have_lost_appends = False
        self._note_boot()

    def _note_boot(self) -> None:
        """Once no log is left that an earlier boot wrote and this process has not checked, note this boot."""
        if not self._unopened and not self.may_have_lost_appends:
            self._last_stop.note_boot()

    # Logs.

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> FileLog:
        name = f"{topic}-{partition}"
        assert name not in self._logs, f"{name} is open already"
        assert "/" not in name
        directory = f"{self.path}/{name}"
        proven_end = self._losses.take_proven_end(name)
        listed = self._listed.pop(name, None)
        try:
            found = topic_id if listed is not None else decode_topic_id(read_file(f"{directory}/{TOPIC_ID_NAME}"))
            if found is not None and found != topic_id:
                # The topic was deleted, but its files were not: the process stopped too early, or the disk refused.
                self._report(f"{name}: removed the files of a deleted topic with the same name")
                self._delete(topic, partition)
            if name not in self._unopened and not proven_end:
                # A new log. One that was lost keeps its entries: they say which offsets must not be used again.
                self._deletion.before_reuse(name)
        except OSError as error:
            raise StorageFailed(str(error)) from error
        point = self._losses.take_synced_end(name)
        last_stop = self._last_stop
        clean_end = last_stop.clean_ends.pop(name, None)
        start = self._start_offsets.get(name)
        log = open_file_log(
            directory,
            topic_id,
            config,
            self._open_files,
            last_stop.trust,
            clean_end,
            point,
            start,
            self._report,
            proven_end,
            self._accept_found_loss if self._losses.is_accepted else None,
            listed,
        )
        if start > log.start_offset:
            # A power loss kept the note of the start and lost the records before it. As the log grows again, the note
            # would hide its new records, and prove an end that the log never had.
            try:
                self._start_offsets.set(name, log.start_offset, durable=True)
            except OSError as error:
                raise StorageFailed(str(error)) from error
        clean_offset = self._clean_offsets.get(name)
        log.clean_offset = clean_offset if clean_offset <= log.end_offset else 0
        log.files.folder = self
        self._logs[name] = log
        if log.files.segments and not self._recovery_points.get(name):
            self._begun_logs.add(name, topic_id)  # There is no other record of it.
        self._note_opened(name)
        return log

    def _note_opened(self, name: str) -> None:
        """The log that the last process left under this name is opened now, or deleted."""
        if name in self._unopened:
            self._unopened.discard(name)
            self._note_boot()

    def take_over(self, topic: str, partition: int) -> FileLog:
        name = f"{topic}-{partition}"
        old = self._logs[name]
        new = self._logs[name] = hand_over(old)
        self._syncs.taken_over(old, new)
        self._checkpoints.taken_over(old, new)
        return new

    def open_logs(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        names = (f"{topic}-{partition}" for topic, partition in partitions)
        return [self._logs[name] for name in names if name in self._logs]

    def delete_log(self, topic: str, partition: int) -> None:
        log = self._logs.pop(f"{topic}-{partition}", None)
        if log is not None:
            log.forget()
            log.files.folder = None
        self._delete(topic, partition)
        self._checkpoints.log_deleted(log)

    def strays(self) -> list[str]:
        """Directories of logs that were not opened: the metadata does not have their topics any more."""
        return sorted(self._unopened)

    def delete_strays(self) -> None:
        for name in self.strays():
            topic, _, partition = name.rpartition("-")
            self._delete(topic, int(partition))

    def _delete(self, topic: str, partition: int) -> None:
        self._deletion.delete(topic, partition)
        name = f"{topic}-{partition}"
        self._last_stop.clean_ends.pop(name, None)
        self._begun_logs.forget(name)
        self._note_opened(name)

    # The cluster's document.

    def load_metadata(self) -> bytes | None:
        return self._document.load()

    def save_metadata(self, document: bytes) -> None:
        try:
            self._document.save(document, at_half=partial(self._open_files.at, "metadata.save"))
        except NotDurable as error:
            # The next start may find the new document or the old one, and this process would go on with the old one.
            raise LogTailUnknown(f"sync failed: {error}") from error
        except OSError as error:
            raise StorageFailed(str(error)) from error

    # Durability.

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        if not self._flush:
            then()
            return
        self._syncs.add([cast(FileLog, log) for log in logs], then)

    def log_begun(self, name: str, topic_id: bytes) -> None:
        self._begun_logs.add(name, topic_id)

    def snapshot_saved(self, log: FileLog, rolled: bool) -> None:
        """Recovery after a power loss begins at a snapshot: make everything before it durable."""
        if (self._flush or rolled) and not self._is_closed:
            self._checkpoints.add(log)

    # Logs that get shorter. See `log_files.LogFolder`.

    def start_moved(self, name: str, start_offset: int) -> None:
        self._start_offsets.set(name, start_offset)

    def clean_moved(self, name: str, clean_offset: int) -> None:
        with suppress(OSError):
            self._clean_offsets.set(name, clean_offset)

    def remove_later(self, paths: list[str]) -> None:
        def work() -> None:
            for path in paths:
                with suppress(OSError):  # The next start removes what is left.
                    os.unlink(path)

        self._defer(work, lambda error: None)

    def swap(self, rewrite: FileRewrite, done: Done) -> None:
        self._swaps.begin(rewrite, done)

    # The end.

    def close(self) -> None:
        if self._is_closed:
            return
        self._swaps.close()
        self._close_workers()
        paths: list[str] = []
        directories: dict[str, None] = {}
        half_swapped = self._swaps.install()
        settled: list[str] = []
        for name, log in self._logs.items():
            if not log.files.settle():
                # Other indexes of the log may have more entries on disk: the next start has to check them.
                self._report(f"{name}: an index could not be written, it is made again at the next start")
            elif name in half_swapped:
                # The next start finishes the swap, and the log will have another size.
                self._report(f"{name}: a cleaned segment could not take its place, the next start tries again")
            else:
                settled.append(name)
                self._recovery_points.set(name, log.end_offset)
            if log.is_changed():
                paths += log.files.to_sync()
                directories |= {self.path: None, log.files.directory: None}
        logs = {name: self._logs[name] for name in settled}
        ends = {
            name: CleanEnd(
                log.end_offset, log.end_address - log.start_address, checksum(encode_leader_epochs(log.leader_epochs()))
            )
            for name, log in logs.items()
        }
        # A request that waited for a sync, also for one that is under way, would go on and append: behind the end that
        # the clean stop vouches for, and to files that may belong to the next process by then.
        for log in self._logs.values():
            log.forget()
        waiting = self._syncs.close()
        try:
            self._disk.sync_paths(paths, directories)
            call_all(waiting)
            self._recovery_points.store_last()
            if self._last_stop.trust is Trust.CLEAN or not (self._unopened or self.may_have_lost_appends):
                write_clean_stop(self.path, {**self._last_stop.clean_ends, **ends}, CHECKED)
        except OSError as error:
            # The next start recovers, as after a crash.
            self._report(f"the stop is not clean: {error}")
        finally:
            drop_lock(self._lock)

    def abandon(self) -> None:
        """Let go of the folder as kill -9 would: nothing more is written. For tests within one process."""
        if not self._is_closed:
            self._swaps.abandon()
            self._close_workers()
            self._syncs.close()
            self._recovery_points.is_closed = True
            for log in self._logs.values():
                log.forget()
                log.files.folder = None
            os.close(self._lock)

    def _close_workers(self) -> None:
        """Let no thread begin anything new."""
        self._is_closed = True
        self._checkpoints.close()
        self._deletion.close()
