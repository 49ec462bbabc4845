"""Compares a data folder with its own records and finds the data that is missing.

Which records prove something depends on how the last process ended:

    clean          the end offset and the size of every log, which the stop noted; and all of the next line
    same boot      the page cache is intact: recovery point, log start offset, newest snapshot, the index of a newer
                   segment, the indexes of the last one where both agree; segments follow one another; a log that
                   is noted in `logs-of-this-boot` has files
    other boot     unsynced writes may be lost, so only the recovery point, which is noted after a sync, and that
                   segments below it follow one another

A torn or damaged batch beyond what is proven is the work of recovery, not missing data. `survey` and its parts only
read.

If a loss is accepted, the missing offsets are skipped, so that none of them is handed out again for another record: an
empty batch with the last of them is appended to the segment before them, as the cleaner leaves one at the end of a
segment. Readers pass over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fencepost.counting import counted
from fencepost.protocol.batch import CHECKED_AT, CHECKED_HEADER, MAGIC, PREFIX_BYTES, UNCHECKED_HEADER
from fencepost.protocol.crc import crc32c
from fencepost.server.storage.checkpoints import TOPIC_ID_NAME, decode_topic_id, read_file
from fencepost.server.storage.cuts import keep_cut
from fencepost.server.storage.heads import BadBatch, walk
from fencepost.server.storage.identity import DataFolderUnusable, refuse_later_topic_id
from fencepost.server.storage.last_stop import CleanEnd, LastStop, Trust
from fencepost.server.storage.offset_files import BEGUN_NAME, BegunLogs, OffsetsFile, RecoveryPoints
from fencepost.server.storage.open_files import OpenFiles, size_of
from fencepost.server.storage.rewriting import last_offset_of
from fencepost.server.storage.segment import SCAN_CHUNK_BYTES, SWAP, Segment, numbered
from fencepost.server.storage.segment_indexes import OFFSET_ENTRY, IndexFile

SETTING = "fencepost.recovery.missing"

_LEAST = -(1 << 62)

# The names (`<topic>-<partition>`) and topic ids of the logs that the cluster's document has.
LogsIn = Callable[[bytes], Iterable[tuple[str, bytes]]]


class LogRecords(NamedTuple):
    """The folder's records about one log."""

    trust: Trust
    clean_end: CleanEnd | None = None  # End offset and size at the clean stop.
    recovery_point: int = 0
    start_offset: int = 0
    is_begun: bool = False  # It had files in this boot of the machine.


class FoundLog(NamedTuple):
    """The files in the directory of one log. `has_directory`: there is one, of the right topic; `names` are in it."""

    has_directory: bool
    segments: list[Segment]
    newest_snapshot: int = 0
    indexed_end: int = 0  # The end offset by the indexes of the last segment, or of a newer one without a `.log`.
    names: Sequence[str] = ()

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


_NOTHING = FoundLog(has_directory=False, segments=[])


class Proof(NamedTuple):
    """The log reached this offset, and which record says so."""

    end_offset: int
    by: str


class Gap(NamedTuple):
    """`segment` has no whole batch from `position` on, and ends before the next segment begins."""

    segment: Segment
    position: int
    end_offset: int
    next_offset: int


class MissingPart(NamedTuple):
    """`found` and `recorded` describe the contents that the log has and should have, as phrases for a message."""

    name: str
    found: str
    recorded: str
    gaps: list[Gap]
    has_damaged_batch: bool = False

    @property
    def is_damaged(self) -> bool:
        """Whether there is a damaged batch, and perhaps whole ones behind it."""
        return self.has_damaged_batch or any(gap.position < gap.segment.size for gap in self.gaps)

    def __str__(self) -> str:
        return f"{self.name}: {self.found}; {self.recorded}"


class DataMissing(DataFolderUnusable):
    """The folder has less than its own records say. `is_damaged`: because a batch is damaged."""

    def __init__(self, folder: str, lines: Iterable[str], is_damaged: bool) -> None:
        kept = ", which keeps the records behind a damaged batch for `fencepost salvage`" if is_damaged else ""
        super().__init__(
            "\n".join([f"the data folder {folder} has less than its own records say", *lines]),
            f"restore the folder from a copy, or accept the loss with --set {SETTING}=accept{kept}",
        )


# --- the rules ------------------------------------------------------------------------------------------------


def proven_end(records: LogRecords, found: FoundLog) -> Proof:
    """The greatest end offset that a record proves; the clean stop has the last word about a log of its size."""
    if records.trust is Trust.CLEAN and records.clean_end is not None and records.clean_end[1] == found.size:
        return Proof(records.clean_end[0], "the clean stop")
    proofs = [Proof(records.recovery_point, "recovery-point-offset-checkpoint")]
    if records.trust is not Trust.OTHER_BOOT:
        proofs.append(Proof(records.start_offset, "log-start-offset-checkpoint"))
        proofs.append(Proof(found.newest_snapshot, "the newest snapshot"))
        proofs.append(Proof(found.indexed_end, "the index of its last segment"))
    if records.trust is Trust.CLEAN and records.clean_end is not None:
        proofs.append(Proof(records.clean_end[0], "the clean stop"))
    return max(proofs, key=lambda proof: proof.end_offset)


def find_missing(name: str, records: LogRecords, found: FoundLog) -> MissingPart | None:
    clean_end = records.clean_end if records.trust is Trust.CLEAN else None
    if clean_end is not None and clean_end[1] == found.size:
        return None  # Nothing is read after a clean stop.
    proof = proven_end(records, found)
    recorded = f"{proof.by} says that the log reaches offset {proof.end_offset}"
    if clean_end is not None:
        recorded = f"the clean stop left {clean_end[1]} bytes, up to offset {clean_end[0]}"
    gaps = find_gaps(found.segments, proof.end_offset if records.trust is Trust.OTHER_BOOT else None)
    if not found.segments:
        if not proof.end_offset:
            if not records.is_begun or records.trust is Trust.OTHER_BOOT:
                return None  # A topic without records.
            recorded = f"by {BEGUN_NAME} it had one"
        there = "there is no .log file" if found.has_directory else "there is no such folder"
        return MissingPart(name, there, recorded, gaps)
    if clean_end is not None and found.size < clean_end[1]:
        there = f"there are {found.size} bytes in {counted(len(found.segments), '.log file')}"
        return MissingPart(name, there, recorded, gaps)
    if gaps:
        stem = f"{gaps[0].segment.base_offset:020d}.log"
        following = f"the next segment begins at {gaps[0].next_offset}"
        return MissingPart(name, f"{stem} ends at offset {gaps[0].end_offset}", following, gaps)
    end_offset, bad = proven_part(found.segments, proof.end_offset)
    if end_offset < proof.end_offset:
        there = f"the log ends at offset {end_offset}"
        if bad is not None:
            there = f"the batch at offset {end_offset} is damaged ({bad})"
        return MissingPart(name, there, recorded, gaps, has_damaged_batch=bad is not None)
    return None


def find_gaps(segments: list[Segment], until: int | None) -> list[Gap]:
    """Where a segment ends before the next one begins; with `until`, only up to this offset."""
    gaps = []
    for segment, following in pairwise(segments):
        next_offset = following.base_offset
        if until is not None and next_offset > until:
            break
        end_offset, position, _ = _walked(segment, None)
        if end_offset < next_offset:
            gaps.append(Gap(segment, position, end_offset, next_offset))
    return gaps


def proven_part(segments: list[Segment], until: int) -> tuple[int, BadBatch | None]:
    """How far the log goes towards `until`, at least, and the bad batch that is there, if any."""
    before = [segment for segment in segments if segment.base_offset < until]
    if not before:
        return (until if segments else 0), None
    end_offset, _, bad = _walked(before[-1], until)
    return min(end_offset, until), bad


def _walked(segment: Segment, until: int | None) -> tuple[int, int, BadBatch | None]:
    """The offset and the position up to which there are whole batches, and the bad batch that is there, if any.

    Begins at the last entry of the offset index that fits. With `until`, checksums are compared, and the walk ends at
    that offset.
    """
    offsets = segment.indexes.offsets
    entry = offsets.last() if until is None else offsets.floor(0, until - 1 - segment.base_offset)
    is_checked = until is not None
    position = entry[1] if entry is not None and segment.entry_fits(entry, check_crc=is_checked) else 0
    end_offset = segment.base_offset
    found: BadBatch | None = None
    try:
        for placed in walk(segment.read, position, segment.size, SCAN_CHUNK_BYTES, check_crc=is_checked):
            position = placed[0] + placed[1]
            end_offset = placed[3] + 1
            if until is not None and end_offset >= until:
                break
    except BadBatch as bad:
        position = bad.position
        found = bad
    segment.close_file()
    return end_offset, position, found


# --- what is there --------------------------------------------------------------------------------------------


def survey(directory: str, topic_id: bytes, open_files: OpenFiles, clean_end: CleanEnd | None = None) -> FoundLog:
    """The files of a log, as recovery will find them once it has finished the swaps of cleaned segments.

    If the log has the size that a clean stop noted, nothing else is asked, and no index is read.
    """
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return _NOTHING
    path = f"{directory}/{TOPIC_ID_NAME}"
    content = read_file(path) if TOPIC_ID_NAME in names else None
    refuse_later_topic_id(path, content)
    found = decode_topic_id(content)
    if found is not None and found != topic_id:
        return _NOTHING  # The rest of a deleted topic.
    offsets = numbered(names)
    suffixes = dict.fromkeys(offsets["log"], "")
    for base_offset in offsets["log" + SWAP]:
        last_offset = last_offset_of(f"{directory}/{base_offset:020d}.log{SWAP}")
        suffixes = {base: suffix for base, suffix in suffixes.items() if not base_offset <= base <= last_offset}
        suffixes[base_offset] = SWAP
    segments = []
    address = 0
    for base_offset, suffix in sorted(suffixes.items()):
        size = size_of(f"{directory}/{base_offset:020d}.log{suffix}")
        segments.append(Segment(open_files, directory, base_offset, address, size, suffix))
        address += size
    found_log = FoundLog(True, segments, max(offsets["snapshot"], default=0), names=names)
    if clean_end is not None and clean_end[1] == address:
        return found_log
    newest = max(offsets["index"], default=-1)
    indexed_end = 0
    if segments and newest == segments[-1].base_offset:
        indexed_end = _end_by_indexes(segments[-1])
    elif newest > max(suffixes, default=-1):
        last = IndexFile(open_files, f"{directory}/{newest:020d}.index", OFFSET_ENTRY).last()
        indexed_end = newest + last[0] + 1 if last is not None and last[0] >= 0 else newest
    return found_log._replace(indexed_end=indexed_end)


def _end_by_indexes(segment: Segment) -> int:
    """How far a segment went by its indexes, if it is shorter than they say; 0 if they prove nothing.

    An index may be damaged itself. So the end is one that both have passed, and both must be in order and fit the
    segment where it is there.
    """
    offsets, times = segment.indexes.offsets, segment.indexes.times
    last, last_time = offsets.last(), times.last()
    if last is None or last_time is None or last[1] < segment.size:
        return 0
    entries, time_entries = list(offsets.starting(0, _LEAST)), list(times.starting(0, _LEAST))
    if offsets.is_torn() or times.is_torn() or not (_are_increasing(entries) and _are_increasing(time_entries)):
        return 0
    fits = segment.size == 0 or segment.entry_fits(entries[0])
    segment.close_file()
    return segment.base_offset + min(last[0], last_time[1]) + 1 if fits else 0


def _are_increasing(entries: list[tuple[int, ...]]) -> bool:
    return (
        all(now > then for before, after in pairwise(entries) for then, now in zip(before, after, strict=True))
        and min(entries[0]) >= 0
    )


class Survey(NamedTuple):
    """Of all logs of a folder: the parts that are missing, and the end offset that is proven for each log.

    `names`: what is in the directory of each log, except where it belongs to another topic.
    """

    missing: list[MissingPart]
    ends: Mapping[str, int]
    names: dict[str, Sequence[str]]


def survey_folder(
    folder: str,
    logs: Iterable[tuple[str, bytes]],
    last_stop: LastStop,
    recovery_points: RecoveryPoints,
    start_offsets: OffsetsFile,
    begun_logs: BegunLogs,
) -> Survey:
    """`logs`: the names and topic ids of the logs that the cluster's document has."""
    open_files = OpenFiles(1, is_read_only=True)
    missing = []
    ends = {}
    names: dict[str, Sequence[str]] = {}
    there = set(os.listdir(folder))
    for name, topic_id in logs:
        recorded = LogRecords(
            last_stop.trust,
            last_stop.clean_ends.get(name),
            recovery_points.get(name),
            start_offsets.get(name),
            begun_logs.has(name, topic_id),
        )
        found = _NOTHING
        if name in there:
            clean_end = recorded.clean_end if recorded.trust is Trust.CLEAN else None
            found = survey(f"{folder}/{name}", topic_id, open_files, clean_end)
        if found.has_directory or name not in there:
            names[name] = found.names
        part = find_missing(name, recorded, found)
        if part is not None:
            missing.append(part)
        ends[name] = proven_end(recorded, found).end_offset
    return Survey(missing, ends, names)


_NO_LEADER_EPOCH = -1


def encode_filler(last_offset: int) -> bytes:
    """A batch without records that takes up one offset."""
    checked = CHECKED_HEADER.pack(0, 0, -1, -1, -1, -1, -1, 0)
    length = CHECKED_AT + len(checked) - PREFIX_BYTES
    return UNCHECKED_HEADER.pack(last_offset, length, _NO_LEADER_EPOCH, MAGIC, crc32c(checked)) + checked


def skip_to(segment: Segment, position: int, next_offset: int) -> None:
    """End the segment at `position` with an empty batch before `next_offset`; it is on disk afterwards.

    Raises OSError, and then the segment has at worst lost what was behind `position`.
    """
    filler = encode_filler(next_offset - 1)
    fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, position)
        if os.pwrite(fd, filler, position) != len(filler):
            raise OSError(f"short write to {segment.path}")
        os.fsync(fd)
    finally:
        os.close(fd)
    segment.size = position + len(filler)


def skip_gap(log: str, gap: Gap) -> str:
    """Let the segment end where the next one begins. Return a text that says where its damaged end was kept."""
    kept = ""
    if gap.position < gap.segment.size:
        kept = keep_cut(log, gap.segment, BadBatch(gap.position, "no whole batch"), gap.end_offset, ())
        gap.segment.close_file()
    skip_to(gap.segment, gap.position, gap.next_offset)
    return kept
