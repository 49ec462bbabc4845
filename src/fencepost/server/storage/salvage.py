"""What `fencepost salvage` reads: a folder that may be damaged, and whole batches in damaged or cut-off files.

A batch counts if its checksum is right. The outcome of a transaction is known only if its marker is in the same files,
these are of one cut, and every offset between the two is there: in a hole there may have been another marker.

`check_folder` reads a whole data folder, or a copy of one, and finds missing data, by the folder's records, and damaged
batches. It takes no lock, so it also reads the folder of a running broker. There, a batch that is being written may
look damaged. Nothing here changes a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fencepost.broker.metadata import logs_in
from fencepost.protocol.batch import BatchHeader, decode_header, decode_marker
from fencepost.protocol.records import Record, iter_records
from fencepost.server.storage.checkpoints import START_OFFSETS_NAME
from fencepost.server.storage.cuts import cut_of, side_files
from fencepost.server.storage.document import METADATA_NAME, Document
from fencepost.server.storage.heads import BadBatch, Read
from fencepost.server.storage.identity import DataFolderUnusable, current_boot, refuse_later_checkpoints
from fencepost.server.storage.last_stop import LastStop
from fencepost.server.storage.missing import survey, survey_folder
from fencepost.server.storage.offset_files import BegunLogs, OffsetsFile, RecoveryPoints
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.searching import TooManyHeaders, whole_batches
from fencepost.server.storage.segment import Segment


class Outcome(Enum):
    PLAIN = "not in a transaction"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    MARKER = "marker"


class SalvagedBatch(NamedTuple):
    """`position` is that in the file. `commit`: of a marker; None for data. `cut`: see `cut_of`."""

    path: str
    position: int
    header: BatchHeader
    commit: bool | None
    cut: str
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def record_count(self) -> int:
        return 0 if self.header.is_control else self.header.record_count


class Salvaged(NamedTuple):
    """`problems`: files of which a part was not searched."""

    batches: list[SalvagedBatch]
    problems: list[str]


class Choice(NamedTuple):
    """What to restore, and the numbers of records that are left out."""

    batches: list[SalvagedBatch]
    aborted: int
    unknown: int

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for batch in self.batches)


@contextmanager
def _reader(path: str) -> Iterator[tuple[Read, int]]:
    """A function that reads the file, and its size."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield lambda position, size: os.pread(fd, size, position), os.fstat(fd).st_size
    finally:
        os.close(fd)


def salvage(paths: Iterable[str]) -> Salvaged:
    """The whole batches of these files, in the order of the files, with their outcomes. Raises OSError."""
    found: list[SalvagedBatch] = []
    problems = []
    for path in paths:
        try:
            for batch in _batches_in(path):
                found.append(batch)  # One by one: those before an exception count.
        except TooManyHeaders as error:
            problems.append(f"{path}: {error}")
    return Salvaged(with_outcomes(found), problems)


def _batches_in(path: str) -> Iterator[SalvagedBatch]:
    cut = cut_of(path)
    with _reader(path) as (read, size):
        for placed in whole_batches(read, 0, size):
            position, size_bytes, *_, buf, at = placed
            header = decode_header(buf, at)
            marker = decode_marker(read(position, size_bytes)) if header.is_control else None
            yield SalvagedBatch(path, position, header, None if marker is None else marker.commit, cut)


def with_outcomes(batches: Sequence[SalvagedBatch]) -> list[SalvagedBatch]:
    """Give each batch of a transaction the outcome that its marker says."""
    outcomes: list[Outcome] = []
    open_batches: dict[int, list[int]] = {}  # Producer id -> indexes of batches that wait for a marker.
    expected = None
    for n, batch in enumerate(batches):
        header = batch.header
        if (batch.cut, header.base_offset) != expected:
            open_batches.clear()
        expected = (batch.cut, header.last_offset + 1)
        if header.is_control:
            outcomes.append(Outcome.MARKER)
            # Compaction may have emptied a marker; then it ends the transaction, and the outcome stays unknown.
            ended = open_batches.pop(header.producer_id, ())
            for index in ended if batch.commit is not None else ():
                outcomes[index] = Outcome.COMMITTED if batch.commit else Outcome.ABORTED
        elif header.is_transactional:
            outcomes.append(Outcome.UNKNOWN)
            open_batches.setdefault(header.producer_id, []).append(n)
        else:
            outcomes.append(Outcome.PLAIN)
    return [batch._replace(outcome=outcome) for batch, outcome in zip(batches, outcomes, strict=True)]


def choose(batches: Sequence[SalvagedBatch], includes_unknown: bool) -> Choice:
    """The batches to restore: those in no transaction, committed ones, and perhaps those of unknown outcome."""
    restored = {Outcome.PLAIN, Outcome.COMMITTED} | ({Outcome.UNKNOWN} if includes_unknown else set())
    with_records = [batch for batch in batches if batch.record_count]
    chosen = [batch for batch in with_records if batch.outcome in restored]
    left_out = [batch for batch in with_records if batch.outcome not in restored]
    aborted = sum(batch.record_count for batch in left_out if batch.outcome is Outcome.ABORTED)
    unknown = sum(batch.record_count for batch in left_out if batch.outcome is Outcome.UNKNOWN)
    return Choice(chosen, aborted, unknown)


def records_of(batch: SalvagedBatch) -> list[Record]:
    """Raises Corrupt if the batch came damaged from its producer, and OSError."""
    with _reader(batch.path) as (read, _):
        return list(iter_records(read(batch.position, batch.header.size_bytes)))


def side_files_in(folder: str) -> list[str]:
    """Of all logs in a data folder. Raises OSError."""
    found = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            found += side_files(entry.path)
    return found


@dataclass(frozen=True, slots=True)
class Damage:
    file: str
    position: int
    reason: str
    behind_bytes: int


@dataclass(frozen=True, slots=True)
class FolderCheck:
    logs: int
    files: int
    batches: int
    bytes: int
    missing: tuple[str, ...]
    damaged: tuple[Damage, ...]

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.damaged


def check_folder(folder: str) -> FolderCheck:
    """Raises DataFolderUnusable if this is not a data folder, DocumentTooNew, DocumentDamaged, and OSError."""
    kept = Document(folder)
    document = kept.load() if os.path.isdir(folder) else None
    if document is None:
        raise DataFolderUnusable(
            f"{folder} is not a data folder: there is no {METADATA_NAME} in it", "name the folder of a broker"
        )
    refuse_later_checkpoints(folder)
    logs = list(logs_in(document))
    boot = current_boot()
    found = survey_folder(
        folder,
        logs,
        LastStop(folder, boot),
        RecoveryPoints(folder),
        OffsetsFile(f"{folder}/{START_OFFSETS_NAME}"),
        BegunLogs(folder, boot),
    )
    open_files = OpenFiles(1, is_read_only=True)
    files = batches = size = 0
    damaged = []
    for name, topic_id in logs:
        segments = survey(f"{folder}/{name}", topic_id, open_files).segments
        for segment in segments:
            whole, damage = _check_segment(segment, may_have_gaps=segment is not segments[-1])
            files += 1
            batches += whole
            size += segment.size
            if damage is not None:
                damaged.append(damage)
    older_copy = kept.describe_older_copy()
    missing = (*([older_copy] if older_copy else []), *map(str, found.missing))
    return FolderCheck(len(logs), files, batches, size, missing, tuple(damaged))


def _check_segment(segment: Segment, may_have_gaps: bool) -> tuple[int, Damage | None]:
    """How many whole batches there are up to the first damage, and the damage."""
    whole = 0
    try:
        for _ in segment.check(0, segment.base_offset, may_have_gaps):
            whole += 1
    except BadBatch as bad:
        return whole, Damage(segment.path, bad.position, bad.why, segment.size - bad.position)
    finally:
        segment.close_file()
    return whole, None
