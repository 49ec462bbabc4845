"""A window of a log with the outcome of each record, and what readers of both isolation levels get of it. Pure.

Keys, values and headers are untrusted bytes and may be large: they are shown as text that a person can read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fencepost.counting import counted
from fencepost.diagnose.strip.window import LogWindow, ReadBatch, is_open, records_of
from fencepost.diagnose.tail.documents import marker_fate, shown_bytes
from fencepost.diagnose.tail.outcomes import Fate, MarkerIndex, decide_fates
from fencepost.diagnose.words import instant
from fencepost.protocol.batch import CODECS, BatchHeader, Corrupt
from fencepost.protocol.records import Record

PREVIEW_CHARS = 60
MOST_HEADERS = 100
Decode = Callable[[LogWindow, ReadBatch], list[Record]]

# What a reader gets of an offset.
GETS, SKIPS, WAITS = "gets", "skips", "waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One offset that holds something."""

    offset: int
    # `record`, `marker`, or `control` for another record of the brokers.
    kind: str
    # Of a record: `plain`, `committed`, `aborted`, `open`, or `unknown` if it has ended and its marker was not read. Of
    # a marker: the outcome that it gives to the records before it. Of another control record: `plain`.
    outcome: str
    # `gets`; `skips`: readers pass over it; `waits`: it is at the last stable offset or behind it.
    read_committed: str
    read_uncommitted: str
    producer_id: int | None
    producer_epoch: int | None
    transactional_id: str | None
    timestamp_ms: int
    # Previews: safe text that is cut.
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Neighbouring offsets of one kind, of one producer and epoch."""

    # `plain`, `committed`, `aborted`, `open`, `unknown`, `marker`, `control`, `unreadable`, or `gap`: the offsets hold
    # nothing, because compaction removed the records, or they were never used.
    kind: str
    first_offset: int
    last_offset: int
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    # Of a marker: the outcome that it gives to the records before it.
    ends: str | None = None
    # Why it is unreadable.
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    name: str
    value: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Everything about one offset."""

    cell: Cell
    # One sentence about the outcome, and one about readers.
    says: str
    time: str
    key: Content
    value: Content
    headers: tuple[RecordHeader, ...]
    header_count: int
    compression: str
    # The batch that holds it.
    batch_first_offset: int
    batch_last_offset: int
    base_sequence: int | None
    leader_epoch: int
    size_bytes: int
    # Of a marker.
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOnPartition:
    producer_id: int
    transactional_id: str | None
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    first_offset: int
    end_offset: int
    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]
    # All that are open on the partition, the first of them holds the last stable offset.
    open_transactions: tuple[OpenOnPartition, ...]
    opened: Opened | None
    remark: str
    problems: tuple[str, ...]


def diagnose_strip(window: LogWindow, open_offset: int | None = None, decode: Decode = records_of) -> Strip:
    """The strip of a window, and one offset of it opened. `decode` gives the records of a batch that are in it."""
    cells: list[Cell] = []
    unreadable = [
        Run(kind="unreadable", first_offset=d.first_offset, last_offset=d.last_offset, problem=d.problem)
        for d in window.damages
    ]
    opened = None
    for read, fate in zip(window.batches, _fates(window), strict=True):
        try:
            records = decode(window, read)
        except Corrupt as e:
            first, last = read.header.base_offset, read.header.last_offset
            unreadable.append(Run(kind="unreadable", first_offset=first, last_offset=last, problem=str(e)))
            continue
        for record in records:
            cell = _cell(window, read, fate, record)
            cells.append(cell)
            if record.offset == open_offset:
                opened = _open(window, read, cell, record)
    remark = window.remark
    if open_offset is not None and opened is None and not remark:
        remark = f"offset {open_offset} holds no record"
    return Strip(
        topic=window.where.topic,
        partition=window.where.partition,
        log_start_offset=window.log_start_offset,
        last_stable_offset=window.last_stable_offset,
        high_watermark=window.high_watermark,
        first_offset=window.first_offset,
        end_offset=window.end_offset,
        cells=tuple(cells),
        runs=tuple(_runs(window.first_offset, window.end_offset, cells, unreadable)),
        open_transactions=_open_transactions(window),
        opened=opened,
        remark=remark,
        problems=window.problems,
    )


def _fates(window: LogWindow) -> list[Fate | None]:
    """The outcome of each batch. Without a marker, only what the leader calls open is open."""
    batches = [read.batch for read in window.batches]
    markers = MarkerIndex([*batches, *window.markers_ahead])
    fates = decide_fates(batches, markers, window.aborted, window.stable_end)
    return [
        Fate.UNKNOWN if fate is Fate.OPEN and not _is_surely_open(window, batch.header) else fate
        for batch, fate in zip(batches, fates, strict=True)
    ]


def _is_surely_open(window: LogWindow, header: BatchHeader) -> bool:
    if window.open_since is None:
        return window.has_all_markers
    return is_open(header, window.open_since)


def _cell(window: LogWindow, read: ReadBatch, fate: Fate | None, record: Record) -> Cell:
    header, marker = read.header, read.batch.marker
    is_record = fate is not None
    outcome = fate if fate is not None else marker_fate(marker) if marker is not None else Fate.PLAIN
    has_producer = header.producer_id >= 0
    return Cell(
        offset=record.offset,
        kind="record" if is_record else "marker" if marker is not None else "control",
        outcome=outcome.value,
        read_committed=read_committed_gets(fate, record.offset, window.last_stable_offset),
        read_uncommitted=GETS if is_record else SKIPS,
        producer_id=header.producer_id if has_producer else None,
        producer_epoch=header.producer_epoch if has_producer else None,
        transactional_id=window.transactional_ids.get(header.producer_id) if header.is_transactional else None,
        timestamp_ms=record.timestamp,
        key=shown_bytes(record.key, PREVIEW_CHARS) if is_record else "",
        value=shown_bytes(record.value, PREVIEW_CHARS) if is_record else "",
    )


def read_committed_gets(fate: Fate | None, offset: int, last_stable_offset: int) -> str:
    """What a read_committed reader gets of an offset; `fate` is None for a marker."""
    if offset >= last_stable_offset:
        return WAITS
    return GETS if fate in (Fate.PLAIN, Fate.COMMITTED) else SKIPS


def _runs(first: int, end: int, cells: Iterable[Cell], unreadable: Iterable[Run]) -> list[Run]:
    """All offsets of the window, in as few runs as possible."""
    pieces = [*map(_run_of, cells), *(cut for run in unreadable if (cut := _inside(run, first, end)) is not None)]
    runs: list[Run] = []
    position = first
    for piece in sorted(pieces, key=lambda run: run.first_offset):
        if piece.first_offset > position:
            runs.append(Run(kind="gap", first_offset=position, last_offset=piece.first_offset - 1))
        if runs and _is_alike(runs[-1], piece):
            runs[-1] = replace(runs[-1], last_offset=piece.last_offset)
        else:
            runs.append(piece)
        position = piece.last_offset + 1
    if position < end:
        runs.append(Run(kind="gap", first_offset=position, last_offset=end - 1))
    return runs


def _is_alike(run: Run, other: Run) -> bool:
    return run == replace(other, first_offset=run.first_offset, last_offset=run.last_offset)


def _run_of(cell: Cell) -> Run:
    return Run(
        kind=cell.outcome if cell.kind == "record" else cell.kind,
        first_offset=cell.offset,
        last_offset=cell.offset,
        producer_id=cell.producer_id,
        producer_epoch=cell.producer_epoch,
        transactional_id=cell.transactional_id,
        ends=cell.outcome if cell.kind == "marker" else None,
    )


def _inside(run: Run, first: int, end: int) -> Run | None:
    cut = replace(run, first_offset=max(run.first_offset, first), last_offset=min(run.last_offset, end - 1))
    return cut if cut.first_offset <= cut.last_offset else None


def _open_transactions(window: LogWindow) -> tuple[OpenOnPartition, ...]:
    since = sorted((offset, producer_id) for producer_id, offset in (window.open_since or {}).items() if offset >= 0)
    return tuple(
        OpenOnPartition(
            producer_id=producer_id, transactional_id=window.transactional_ids.get(producer_id), first_offset=offset
        )
        for offset, producer_id in since
    )


def _open(window: LogWindow, read: ReadBatch, cell: Cell, record: Record) -> Opened:
    header, marker = read.header, read.batch.marker
    is_record = cell.kind == "record"
    headers = [RecordHeader(name=name, value=content_of(value)) for name, value in record.headers[:MOST_HEADERS]]
    return Opened(
        cell=cell,
        says=_says(cell, window.last_stable_offset),
        time=instant(record.timestamp),
        key=content_of(record.key if is_record else None),
        value=content_of(record.value if is_record else None),
        headers=tuple(headers) if is_record else (),
        header_count=len(record.headers) if is_record else 0,
        compression=CODECS[header.codec],
        batch_first_offset=header.base_offset,
        batch_last_offset=header.last_offset,
        base_sequence=header.base_sequence if header.base_sequence >= 0 else None,
        leader_epoch=header.leader_epoch,
        size_bytes=header.size_bytes,
        coordinator_epoch=marker.coordinator_epoch if marker is not None else None,
    )


OUTCOMES = {
    "plain": "It was written outside any transaction.",
    "committed": "Its transaction was committed.",
    "aborted": "Its transaction was aborted.",
    "open": "Its transaction is open.",
    "unknown": "Its transaction has ended, but its marker is too far ahead to be read here.",
}


def _says(cell: Cell, last_stable_offset: int) -> str:
    """The outcome of an offset, and what readers make of it."""
    behind = counted(cell.offset - last_stable_offset, "offset")
    if cell.kind == "control":
        return "A control record of the brokers. No reader gets it."
    if cell.kind == "marker":
        what = "commits" if cell.outcome == "committed" else "aborts"
        says = (
            f"A marker: it {what} the transaction of producer {cell.producer_id} in this partition. No reader gets it."
        )
        waits = f" It is {behind} behind the last stable offset, where read_committed readers wait."
        return says + (waits if cell.read_committed == WAITS else "")
    if cell.read_committed == GETS:
        return f"{OUTCOMES[cell.outcome]} All readers get it."
    if cell.read_committed == SKIPS:
        return f"{OUTCOMES[cell.outcome]} Only read_uncommitted readers get it."
    place = (
        "at the last stable offset" if cell.offset == last_stable_offset else f"{behind} behind the last stable offset"
    )
    return (
        f"{OUTCOMES[cell.outcome]} read_uncommitted readers get it; read_committed readers do not yet: it is {place}."
    )


MOST_CHARS = 16_384
MOST_HEX_BYTES = 2_048
HEX_BYTES_PER_LINE = 16
INDENT = "  "
# Deeper JSON is shown as it is: indented, it would grow with the square of its depth.
DEEPEST_INDENTED = 40
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    # `null`, `text` (UTF-8), `json` (indented, otherwise as it was written) or `hex`.
    format: str
    text: str
    size_bytes: int
    # The text ends before the bytes do.
    is_cut: bool


def content_of(data: bytes | None) -> Content:
    if data is None:
        return Content(format="null", text="", size_bytes=0, is_cut=False)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        shown = data[:MOST_HEX_BYTES]
        return Content(format="hex", text=_hex(shown), size_bytes=len(data), is_cut=len(shown) < len(data))
    if len(text) > MOST_CHARS:
        return Content(format="text", text=text[:MOST_CHARS], size_bytes=len(data), is_cut=True)
    indented = _indented_json(text)
    if indented is not None:
        return Content(format="json", text=indented, size_bytes=len(data), is_cut=False)
    return Content(format="text", text=text, size_bytes=len(data), is_cut=False)


def _hex(data: bytes) -> str:
    lines = range(0, len(data), HEX_BYTES_PER_LINE)
    return "\n".join(f"{at:08x}  {data[at : at + HEX_BYTES_PER_LINE].hex(' ')}" for at in lines)


def _indented_json(text: str) -> str | None:
    """A JSON object or array with a line for each of its parts; None if the text is none, or is nested too deeply.

    Names that occur twice and numbers stay as they were written, which a decoder and an encoder would not ensure.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    out: list[str] = []
    depth = 0
    tokens = _JSON_TOKEN.findall(text)
    for n, token in enumerate(tokens):
        if token in "}]":
            depth -= 1
            if tokens[n - 1] not in "{[":
                out.append(f"\n{INDENT * depth}")
        elif n and tokens[n - 1] in "{[":
            out.append(f"\n{INDENT * depth}")
        out.append({",": f",\n{INDENT * depth}", ":": ": "}.get(token, token))
        if token in "{[":
            depth += 1
            if depth > DEEPEST_INDENTED:
                return None
    return "".join(out)
