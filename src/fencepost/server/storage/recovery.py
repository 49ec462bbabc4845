"""Open the directory of one log: check the part that cannot be trusted, and cut off a batch that is not complete.

    clean          the last process stopped cleanly and noted the ends of the logs
    same boot      it was killed, but the page cache is intact: only the end of the active segment, past
                   the last index entry, can hold an incomplete batch
    other boot     the machine went down: everything past the recovery point, the last end that was synced
                   together with its indexes and snapshot, is read and its checksums compared

Derived files are repaired: offset index, time index and leader epochs from the `.log`; the aborted-transaction index by
the partition's replay, so snapshots that vouch for an index that has changed are removed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress

from fencepost.machines.log.interface import CorruptLog, LogConfig
from fencepost.protocol.batch import LEADER_EPOCH
from fencepost.server.storage.aborted_index import keep_checked
from fencepost.server.storage.checkpoints import (
    EPOCHS_NAME,
    encode_leader_epochs,
    read_file,
    read_leader_epochs,
    write_leader_epochs,
)
from fencepost.server.storage.cuts import keep_cut, may_have_batch
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.heads import BadBatch, Placed
from fencepost.server.storage.last_stop import CleanEnd, Trust, checksum
from fencepost.server.storage.log_files import LogFiles
from fencepost.server.storage.missing import DataMissing, skip_to
from fencepost.server.storage.open_files import OpenFiles, size_of
from fencepost.server.storage.rewriting import finish_swaps
from fencepost.server.storage.segment import SCAN_CHUNK_BYTES, Segment, numbered
from fencepost.server.storage.segment_indexes import SUFFIXES
from fencepost.server.storage.snapshots import SNAPSHOT_SUFFIXES
from fencepost.server.storage.syncing import sync_directory

# A torn batch makes one index entry invalid. If this many are invalid, the whole index is rebuilt.
_TRIED_ENTRIES = 3

Report = Callable[[str], None]
AcceptLoss = Callable[[str, int], None]  # Receives the name of the log, and the end offset that is proven.


def open_file_log(
    directory: str,
    topic_id: bytes,
    config: LogConfig,
    open_files: OpenFiles,
    trust: Trust,
    clean_end: CleanEnd | None,
    recovery_point: int | None,
    start_offset: int,
    report: Report,
    proven_end: int = 0,
    accept_loss: AcceptLoss | None = None,
    listed: Iterable[str] | None = None,
) -> FileLog:
    """The log in `directory`, or a new one. `report` gets one line for every repair.

    `clean_end`: the end offset and the size that a clean stop noted; files of another size are checked.
    `start_offset`: where the log begins, if that is within its first segment. `proven_end`: the log has reached this
    offset, by the folder's records (`missing.py`). Where it ends before, `accept_loss` is called before anything is
    changed, and it continues there; without `accept_loss`, DataMissing is raised. `listed`: what is in the directory,
    if that is known.
    """
    try:
        names = set(os.listdir(directory) if listed is None else listed)
    except FileNotFoundError:
        names = set()
        if not proven_end:
            return FileLog(directory, topic_id, config, open_files, [], 0, [], [])
    opening = _Opening(directory, names, config, open_files, report)
    opening.proven_end = proven_end
    opening.accept_loss = accept_loss
    segments: list[Segment] = []
    if names:
        if (swapped := finish_swaps(directory, names, opening.report)) is not names:
            opening.take_names(swapped)
        segments = opening.find_segments()
    if not segments:
        opening.drop_snapshots_above(-1)
        if not proven_end:
            return FileLog(directory, topic_id, config, open_files, [], 0, [], [])
        return opening.begin_empty_log(topic_id)
    point = recovery_point or 0
    size = segments[-1].address + segments[-1].size
    # A clean stop notes the end offset twice: they have to agree.
    if trust is Trust.CLEAN and clean_end is not None and clean_end[:2] == (point, size):
        opening.put_indexes_in_place(segments, len(segments))
        end_offset = clean_end.end_offset
    else:
        if trust is Trust.CLEAN:
            left = "does not vouch for them"
            if clean_end is not None:
                left = f"left {clean_end.size_bytes}, up to offset {clean_end.end_offset}"
            opening.report(f"has {size} bytes and a recovery point at {point}, the clean stop {left}: checked")
        checked_from = len(segments) - 1
        if trust is Trust.OTHER_BOOT:
            checked_from = max((i for i, s in enumerate(segments) if s.base_offset <= point), default=0)
        opening.put_indexes_in_place(segments, checked_from)
        end_offset = opening.check(segments, checked_from, point if trust is Trust.OTHER_BOOT else None)
    if accept_loss is not None:
        found_end = opening.check_what_is_read(segments, end_offset)
        if found_end < end_offset:
            end_offset, trust = found_end, Trust.OTHER_BOOT
    vouched_for = min(point, end_offset) if trust is Trust.OTHER_BOOT else end_offset
    snapshots = opening.check_txns(segments, vouched_for)
    end_offset = opening.skip_lost_offsets(segments, end_offset)
    noted = read_leader_epochs(directory) if EPOCHS_NAME in opening.names else None
    if trust is Trust.CLEAN and clean_end is not None and clean_end.epochs_checksum is not None:
        noted = noted if checksum(encode_leader_epochs(noted or [])) == clean_end.epochs_checksum else None
    epochs = [entry for entry in noted or () if entry[1] < end_offset]
    if noted is None and segments[-1].address + segments[-1].size:
        found = "is not as it was" if EPOCHS_NAME in opening.names else "is missing"
        opening.report(f"{EPOCHS_NAME} {found}: made again from the log")
        opening.find_epochs(segments)
    for epoch, first_offset in opening.epochs:
        if epoch > (epochs[-1][0] if epochs else -1):
            epochs.append((epoch, first_offset))  # The epoch began after the last sync of the file.
    if epochs != noted:
        write_leader_epochs(directory, epochs)
    log = FileLog(directory, topic_id, config, open_files, segments, end_offset, snapshots, epochs)
    log.start_offset = min(max(log.start_offset, start_offset), end_offset)
    files = log.files
    files.recovery_point = min(point, end_offset)
    with suppress(CorruptLog):  # A later read of the damaged part reports the damage.
        files.recovery_address = log.address_of(files.recovery_point)
    if trust is Trust.CLEAN and log.end_offset == point:
        files.synced_address = log.end_address
    else:
        # The last process may have died before it synced the names.
        files.directory_changed = files.directory_created = True
    return log


class _Opening:
    """One directory that is being opened."""

    def __init__(
        self, directory: str, names: set[str], config: LogConfig, open_files: OpenFiles, report: Report
    ) -> None:
        self.directory = directory
        self.take_names(names)
        self.config = config
        self.open_files = open_files
        self.proven_end = 0
        self.accept_loss: AcceptLoss | None = None
        self.epochs: list[tuple[int, int]] = []  # Leader epochs of the checked batches, with their first offsets.
        self._report = report

    def report(self, line: str) -> None:
        self._report(f"{os.path.basename(self.directory)}: {line}")

    def take_names(self, names: set[str]) -> None:
        self.names = names
        self._offsets = numbered(names)
        self._snapshots = self._offsets["snapshot"]

    def find_segments(self) -> list[Segment]:
        segments = []
        address = 0
        bases = self._offsets["log"]
        for base_offset in bases:
            size = size_of(f"{self.directory}/{base_offset:020d}.log")
            segments.append(Segment(self.open_files, self.directory, base_offset, address, size))
            address += size
        left_over = [name for name in self.names if name.endswith(".tmp")]
        for suffix in SUFFIXES:
            if self._offsets[suffix] != bases:
                left_over += [f"{base:020d}.{suffix}" for base in {*self._offsets[suffix]}.difference(bases)]
        for name in left_over:
            # By a process that was killed while it created a segment or replaced a file.
            os.unlink(f"{self.directory}/{name}")
        return segments

    def put_indexes_in_place(self, segments: list[Segment], checked_from: int) -> None:
        for index, segment in enumerate(segments):
            stem = f"{segment.base_offset:020d}"
            have = [f"{stem}.{suffix}" in self.names for suffix in SUFFIXES]
            if index >= checked_from and not all(have) and not self.has_snapshot_above(segment.base_offset):
                # The process was killed before its first write of the indexes.
                if any(have):
                    segment.indexes.forget()
                    segment.indexes.txns.remove()
                else:
                    segment.indexes.create_later()
                continue
            if not (have[0] and have[1]):
                self.report(f"an index of {stem}.log is missing: made again from the log")
                if index < checked_from:
                    segment.rebuild_indexes(self.config.index_interval_bytes)
                else:
                    segment.indexes.forget()

    def check(self, segments: list[Segment], first: int, recovery_point: int | None) -> int:
        """Check the segments from `segments[first]` on, and cut at the first bad batch; return the end offset.

        With a recovery point, no file is trusted beyond it. Without, the files are as the process left them, and only
        its last write may be incomplete.
        """
        end_offset = segments[first].base_offset
        for index in range(first, len(segments)):
            segment = segments[index]
            # The cleaner may have left gaps in all segments except the active one.
            end_offset, bad = self.check_segment(segment, recovery_point, may_have_gaps=index + 1 < len(segments))
            if bad is None and index + 1 < len(segments) and end_offset != segments[index + 1].base_offset:
                bad = BadBatch(segment.size, f"the next segment begins at offset {segments[index + 1].base_offset}")
            if bad is not None:
                is_behind = index + 1 < len(segments) or may_have_batch(segment, bad.position + 1)
                if recovery_point is None and self.config.keeps_state and is_behind:
                    # A kill damages the last write only, and without the later ones decided transactions would be open.
                    self.proven_end = max(self.proven_end, end_offset + 1)
                self.cut(segments, index, bad, end_offset)
                break
            if index + 1 < len(segments):
                segment.indexes.seal()
        return end_offset

    def check_what_is_read(self, segments: list[Segment], end_offset: int) -> int:
        """Cut the log at the first damaged batch among those that this start will read; return the end offset.

        It will replay what came after the newest snapshot, and load all of a coordinator's log. Without the consent to
        a loss, these readers find the damage, and the start is refused.
        """
        snapshots = self.find_snapshots(end_offset)
        read_from = snapshots[-1] if snapshots and not self.config.keeps_state else segments[0].base_offset
        for index, segment in enumerate(segments):
            is_last = index + 1 == len(segments)
            if not is_last and segments[index + 1].base_offset <= read_from:
                continue
            next_offset = segment.base_offset
            try:
                for placed in segment.check(0, next_offset, may_have_gaps=not is_last):
                    next_offset = placed[3] + 1
            except BadBatch:
                self.proven_end = max(self.proven_end, next_offset + 1)
                return self.check(segments, index, recovery_point=segment.base_offset)
        return end_offset

    def check_segment(
        self, segment: Segment, recovery_point: int | None, may_have_gaps: bool
    ) -> tuple[int, BadBatch | None]:
        """Walk from the last valid index entry; return the end offset, and the bad batch there, if any."""
        if recovery_point is not None:
            segment.indexes.offsets.keep_ordered()
            segment.indexes.times.keep_ordered()
            segment.indexes.offsets.keep_below(0, recovery_point - segment.base_offset)
        entry = self.last_good_entry(segment)
        start = 0
        next_offset: int | None = segment.base_offset
        end_offset = segment.base_offset
        if entry is not None:
            # The walk begins with the entry's own batch. The entry does not have its base offset.
            start = entry[1]
            next_offset = None
        segment.indexes.load_max_timestamp()
        segment.indexes.unindexed_bytes = 0
        try:
            for placed in segment.check(start, next_offset, may_have_gaps):
                segment.indexes.note(placed, self.config.index_interval_bytes)
                end_offset = placed[3] + 1
                self.see_epoch(placed)
        except BadBatch as bad:
            return end_offset, bad
        return end_offset, None

    def find_epochs(self, segments: list[Segment]) -> None:
        """Look for leader epochs in the whole log, as far as it can be read."""
        self.epochs.clear()
        with suppress(CorruptLog):
            for segment in segments:
                for placed in segment.walk(0, chunk_bytes=SCAN_CHUNK_BYTES):
                    self.see_epoch(placed)

    def see_epoch(self, placed: Placed) -> None:
        base_offset, buf, at = placed[2], placed[6], placed[7]
        leader_epoch = int.from_bytes(buf[at + LEADER_EPOCH.start : at + LEADER_EPOCH.stop], "big", signed=True)
        if leader_epoch > (self.epochs[-1][0] if self.epochs else -1):
            self.epochs.append((leader_epoch, base_offset))

    def last_good_entry(self, segment: Segment) -> tuple[int, ...] | None:
        """Cut offset and time index after the last entry whose batch is complete; return it from the offset index."""
        segment.indexes.offsets.keep_below(1, segment.size)
        for _ in range(0 if segment.indexes.times.is_torn() else _TRIED_ENTRIES):
            entry = segment.indexes.offsets.last()
            if entry is None:
                segment.indexes.times.truncate(0)
                return None
            if segment.entry_fits(entry, check_crc=True):
                segment.indexes.times.keep_below(1, entry[0] + 1)
                if not segment.has_good_times():
                    break  # The greatest timestamp below the entry is unknown: read everything again.
                return entry
            segment.indexes.offsets.truncate(segment.indexes.offsets.stored - 1)
        segment.indexes.forget()
        return None

    def cut(self, segments: list[Segment], index: int, bad: BadBatch, end_offset: int) -> None:
        segment = segments[index]
        self.refuse_or_accept_loss(end_offset, f"{os.path.basename(segment.path)}: {bad}")
        is_closed = index + 1 < len(segments)
        lost = sum(later.size for later in segments[index:]) - bad.position
        # Before the rest is gone: a snapshot proves how far the log went.
        self.drop_snapshots_above(end_offset)
        kept = keep_cut(os.path.basename(self.directory), segment, bad, end_offset, segments[index + 1 :])
        del segments[index + 1 :]
        name = os.path.basename(segment.path)
        self.report(f"cut {lost} bytes of {name} after offset {end_offset - 1} ({bad}){kept}")
        with open(segment.path, "r+b") as file:
            file.truncate(bad.position)
        segment.size = bad.position
        if is_closed and self.config.compact and end_offset > segment.base_offset:
            # It may have gaps, and new batches must go into a segment without gaps.
            segment.indexes.seal()
            segments.append(Segment(self.open_files, self.directory, end_offset, segment.address + segment.size, 0))
            segments[-1].create_files()

    def refuse_or_accept_loss(self, end_offset: int, damage: str = "") -> None:
        """Raise DataMissing if the log ends before its proven end, unless the loss is accepted."""
        if end_offset >= self.proven_end:
            return
        name = os.path.basename(self.directory)
        if self.accept_loss is not None:
            self.accept_loss(name, self.proven_end)
        else:
            line = f"{name}: the log ends at offset {end_offset}; by the records it reaches offset {self.proven_end}"
            line += f" ({damage})" if damage else ""
            raise DataMissing(os.path.dirname(self.directory), [line], is_damaged=bool(damage))

    def skip_lost_offsets(self, segments: list[Segment], end_offset: int) -> int:
        """Let the log continue where it ended by the folder's records; return its end offset."""
        if end_offset >= self.proven_end:
            return end_offset
        self.refuse_or_accept_loss(end_offset)
        last = segments[-1]
        last.close_file()
        skip_to(last, last.size, self.proven_end)
        last.indexes.seal()
        self.begin_segment(segments)
        return self.proven_end

    def begin_empty_log(self, topic_id: bytes) -> FileLog:
        """A log that begins where the one before it ended by the folder's records."""
        self.refuse_or_accept_loss(0)
        LogFiles(self.directory, self.open_files, [], []).create_directory(topic_id)
        segments: list[Segment] = []
        self.begin_segment(segments)
        sync_directory(os.path.dirname(self.directory))
        log = FileLog(self.directory, topic_id, self.config, self.open_files, segments, self.proven_end, [], [])
        log.files.directory_changed = log.files.directory_created = True
        return log

    def begin_segment(self, segments: list[Segment]) -> None:
        address = segments[-1].address + segments[-1].size if segments else 0
        segments.append(Segment(self.open_files, self.directory, self.proven_end, address, 0))
        segments[-1].create_files()
        sync_directory(self.directory)

    def check_txns(self, segments: list[Segment], vouched_for: int) -> list[int]:
        """Keep the aborted-transaction index as it was at the newest snapshot; return the snapshots that can be used.

        The partition replays the log from that snapshot, and adds the rest. Where the index is not as it was, it is
        emptied, so the partition has to begin with an earlier snapshot.
        """
        while snapshots := self.find_snapshots(vouched_for):
            newest = snapshots[-1]
            name = f"{newest:020d}.txncheck"
            noted = read_file(f"{self.directory}/{name}") if name in self.names else None
            changed = keep_checked(segments, noted, newest)
            if changed is None:
                return snapshots
            path = segments[changed].indexes.txns.path
            # An earlier version notes none.
            found = "has no checksum" if noted is None else f"is not as it was at offset {newest}"
            self.report(f"{os.path.basename(path)} {found}: made again from the log")
            self.drop_snapshots_above(segments[changed].base_offset)
            for segment in segments[changed:]:
                segment.indexes.txns.truncate(0)
        for segment in segments:
            segment.indexes.txns.truncate(0)
        return []

    def find_snapshots(self, until_offset: int) -> list[int]:
        """The offsets of the snapshots that can be used, in order; the others are removed."""
        self.drop_snapshots_above(until_offset)
        return list(self._snapshots)

    def has_snapshot_above(self, offset: int) -> bool:
        return bool(self._snapshots) and self._snapshots[-1] > offset

    def drop_snapshots_above(self, offset: int) -> None:
        kept = bisect_right(self._snapshots, offset)
        for dropped in self._snapshots[kept:]:
            for suffix in SNAPSHOT_SUFFIXES:
                with suppress(FileNotFoundError):
                    os.unlink(f"{self.directory}/{dropped:020d}.{suffix}")
        del self._snapshots[kept:]
