"""Side files: the bytes that recovery cuts off a log are kept next to it, because there is no other copy.

    00000000000000000000.log.cut-1          the bytes, as they were
    00000000000000000000.log.cut-1.json     a note: where they were, and why they were cut off

Three kinds. A `segment` is a whole file behind the damage, and only its name is changed. `damaged` is the rest of the
segment in which the damage is. Both stay until their topic is deleted. `torn` has no whole batch: it is the rest of a
write that did not finish, which was never acknowledged. Of these, a log keeps the newest few.

A full disk does not fail the start: then the bytes are not kept, and the report says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from fencepost.protocol.crc import crc32c
from fencepost.server.storage.checkpoints import read_file, replace_file
from fencepost.server.storage.heads import BadBatch
from fencepost.server.storage.searching import TooManyHeaders, whole_batches
from fencepost.server.storage.segment import Segment
from fencepost.server.storage.syncing import sync_directory

KEPT_TORN_WRITES = 4
NOTE_SUFFIX = ".json"

_NAME = re.compile(r"(\d{20}\.log)\.cut-(\d+)")
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CutNote:
    """`position` and `bytes`: of the side file in `segment`. `expected_offset`: of the batch that should be there.

    `cut`: the same for all files of one cut, and no other; empty if it is not known.
    """

    log: str
    segment: str
    kind: str
    position: int
    bytes: int
    expected_offset: int
    reason: str
    when: str
    cut: str = ""


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_cut() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")


def cut_of(path: str) -> str:
    """A text that two files share only if both were parts of one log at the same time."""
    note = read_note(path)
    if note is not None and note.cut:
        return f"{note.log} {note.cut}"
    return os.path.dirname(os.path.abspath(path)) if path.endswith(".log") else path


def side_files(directory: str) -> list[str]:
    """Paths, in the order of the log, and in the order in which they were made."""
    found = []
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append((match[1], int(match[2]), f"{directory}/{name}"))
    return [path for _, _, path in sorted(found)]


def read_note(path: str) -> CutNote | None:
    """The note of a side file; None if there is none that can be read."""
    try:
        return CutNote(**json.loads(read_file(path + NOTE_SUFFIX) or b""))
    except (ValueError, TypeError):
        return None


# --- keeping --------------------------------------------------------------------------------------------------


def keep_cut(log: str, segment: Segment, bad: BadBatch, end_offset: int, later: Iterable[Segment]) -> str:
    """Keep the rest of the segment behind `bad`, and the segments `later`. Return a phrase about them for the report.

    The segments `later` are not part of the log afterwards. The segment of `bad` is not changed.
    """
    directory = os.path.dirname(segment.path)
    has_later = False
    kept: list[str] = []
    refused = ""
    cut = new_cut()
    try:
        if segment.size > bad.position:
            kept.append(_keep_rest(log, segment, bad, end_offset, cut))
            note = read_note(f"{directory}/{kept[0]}")
            cut = note.cut if note is not None and note.cut else cut  # An interrupted cut continues.
    except OSError as error:
        refused = f", {segment.size - bad.position} of them not kept: {error.strerror or error}"
    for other in later:
        has_later = True
        kept.append(_keep_segment(log, other, end_offset, cut))
    if has_later:
        sync_directory(directory)
    with suppress(OSError):
        _remove_old_torn(directory)
    names = f"{kept[0]} and {len(kept) - 1} more" if len(kept) > 1 else "".join(kept)
    return (f", kept in {names}" if kept else "") + refused


def _keep_rest(log: str, segment: Segment, bad: BadBatch, end_offset: int, cut: str) -> str:
    """Copy the rest of the segment to a side file that is on disk afterwards. Raises OSError."""
    name = os.path.basename(segment.path)
    directory = os.path.dirname(segment.path)
    pieces = range(bad.position, segment.size, _COPIED_BYTES)
    size = segment.size - bad.position
    crc = 0
    for position in pieces:
        crc = crc32c(segment.read(position, min(_COPIED_BYTES, segment.size - position)), crc)
    mine = [path for path in side_files(directory) if os.path.basename(path).startswith(name)]
    for path in mine:
        # A process that was killed after it had kept this, and before it had cut it off.
        if os.stat(path).st_size == size and _crc_of(path) == crc:
            return os.path.basename(path)
    path = f"{segment.path}.cut-{_next_number(mine)}"
    try:
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            for position in pieces:
                _write(fd, segment.read(position, min(_COPIED_BYTES, segment.size - position)))
            os.fsync(fd)
        finally:
            os.close(fd)
        kind = "damaged" if bad.is_whole or may_have_batch(segment, bad.position) else "torn"
        _write_note(log, name, path, kind, bad.position, size, end_offset, bad.why, cut)
        os.rename(path + ".tmp", path)
    except OSError:
        for left in (path + ".tmp", path + NOTE_SUFFIX):
            with suppress(OSError):
                os.unlink(left)
        raise
    sync_directory(directory)
    return os.path.basename(path)


def may_have_batch(segment: Segment, position: int) -> bool:
    """Whether there are whole batches from this position on."""
    try:
        return any(True for _ in whole_batches(segment.read, position, segment.size))
    except TooManyHeaders:
        return True


def _keep_segment(log: str, segment: Segment, end_offset: int, cut: str) -> str:
    """Rename the segment, which needs no room, and remove its indexes. Raises OSError if it has its name still."""
    directory, name = os.path.dirname(segment.path), os.path.basename(segment.path)
    mine = [path for path in side_files(directory) if os.path.basename(path).startswith(name)]
    path = f"{segment.path}.cut-{_next_number(mine)}"
    with suppress(OSError):
        why = f"it is behind the damage at offset {end_offset}"
        _write_note(log, name, path, "segment", 0, segment.size, segment.base_offset, why, cut)
    segment.close_file()
    os.rename(segment.path, path)
    for index in segment.indexes.files():
        index.remove()
    return os.path.basename(path)


def _write_note(
    log: str, segment: str, path: str, kind: str, position: int, size: int, expected_offset: int, why: str, cut: str
) -> None:
    note = CutNote(
        log=log,
        segment=segment,
        kind=kind,
        position=position,
        bytes=size,
        expected_offset=expected_offset,
        reason=why,
        when=now_text(),
        cut=cut,
    )
    replace_file(path + NOTE_SUFFIX, json.dumps(asdict(note), indent=1).encode() + b"\n", durable=False)


def _remove_old_torn(directory: str) -> None:
    torn = []
    for path in side_files(directory):
        note = read_note(path)
        if note is not None and note.kind == "torn":
            torn.append((note.when, path))
    for _, path in sorted(torn)[:-KEPT_TORN_WRITES]:
        os.unlink(path)
        with suppress(FileNotFoundError):
            os.unlink(path + NOTE_SUFFIX)


def _next_number(paths: list[str]) -> int:
    return max((int(path.rpartition("-")[2]) for path in paths), default=0) + 1


def _crc_of(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        crc = position = 0
        while piece := os.pread(fd, _COPIED_BYTES, position):
            crc = crc32c(piece, crc)
            position += len(piece)
        return crc
    finally:
        os.close(fd)


def _write(fd: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(fd, data[written:])
