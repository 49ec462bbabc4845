"""Reads a whole data folder, or a copy of one: finds missing data, by the folder's records, and damaged batches.

Changes nothing and takes no lock, so it also reads the folder of a running broker. There, a batch that is being written
may look damaged.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from fencepost.broker.metadata import logs_in
from fencepost.server.storage.begun_logs import BegunLogs
from fencepost.server.storage.checkpoints import START_OFFSETS_NAME
from fencepost.server.storage.document import METADATA_NAME, Document
from fencepost.server.storage.formats import refuse_later_checkpoints
from fencepost.server.storage.heads import BadBatch
from fencepost.server.storage.identity import DataFolderUnusable, current_boot
from fencepost.server.storage.last_stop import LastStop
from fencepost.server.storage.missing import survey, survey_folder
from fencepost.server.storage.offset_files import OffsetsFile, RecoveryPoints
from fencepost.server.storage.open_files import OpenFiles
from fencepost.server.storage.segment import Segment


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
