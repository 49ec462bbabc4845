"""The documents of `fencepost tail`, also as lines: records, markers, ends of transactions that were shown as open.

Keys and values are untrusted bytes: none of them may reach the terminal raw.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.counting import counted
from fencepost.diagnose.tail.outcomes import Fate, OpenOffsets
from fencepost.diagnose.words import instant
from fencepost.printable import printable
from fencepost.protocol.batch import CODECS, BatchHeader, Marker
from fencepost.protocol.records import Record


class ReadRecord(NamedTuple):
    where: NamedPartition
    record: Record
    header: BatchHeader
    fate: Fate
    transactional_id: str | None


class ReadMarker(NamedTuple):
    where: NamedPartition
    offset: int
    marker: Marker
    transactional_id: str | None


class EndedOffsets(NamedTuple):
    """Offsets that were shown as open have an outcome now."""

    where: NamedPartition
    offsets: OpenOffsets
    fate: Fate
    marker_offset: int | None
    transactional_id: str | None


class Remark(NamedTuple):
    """Something that happened while reading, which is not data."""

    text: str


TailEvent = ReadRecord | ReadMarker | EndedOffsets | Remark


@dataclass(frozen=True, slots=True, kw_only=True)
class TailHeader:
    name: str
    # The value as text, or null if it is not UTF-8, or missing.
    value: str | None
    # The value in Base64 if it is not UTF-8.
    value_base64: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    type: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    # `plain` (outside any transaction), `committed`, `aborted` or `open`.
    outcome: str
    transactional_id: str | None
    producer_id: int | None
    producer_epoch: int | None
    key: str | None
    key_base64: str | None
    value: str | None
    value_base64: str | None
    headers: tuple[TailHeader, ...]
    compression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TailMarker:
    type: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    # `committed` or `aborted`: the outcome that the marker gives to the records before it.
    outcome: str
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TailEnd:
    type: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    record_count: int
    # `committed`, `aborted`, or `unknown` if the marker was deleted before it was read.
    outcome: str
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    marker_offset: int | None


TailDocument = TailRecord | TailMarker | TailEnd


def document_of(event: ReadRecord | ReadMarker | EndedOffsets) -> TailDocument:
    if isinstance(event, ReadRecord):
        return _record_document(event)
    if isinstance(event, ReadMarker):
        return TailMarker(
            type="marker",
            topic=event.where.topic,
            partition=event.where.partition,
            offset=event.offset,
            timestamp_ms=event.marker.timestamp,
            outcome=marker_fate(event.marker).value,
            transactional_id=event.transactional_id,
            producer_id=event.marker.producer_id,
            producer_epoch=event.marker.producer_epoch,
            coordinator_epoch=event.marker.coordinator_epoch,
        )
    return TailEnd(
        type="end",
        topic=event.where.topic,
        partition=event.where.partition,
        first_offset=event.offsets.first_offset,
        last_offset=event.offsets.last_offset,
        record_count=event.offsets.record_count,
        outcome=event.fate.value,
        transactional_id=event.transactional_id,
        producer_id=event.offsets.producer_id,
        producer_epoch=event.offsets.producer_epoch,
        marker_offset=event.marker_offset,
    )


def marker_fate(marker: Marker) -> Fate:
    return Fate.COMMITTED if marker.commit else Fate.ABORTED


def _record_document(event: ReadRecord) -> TailRecord:
    record, header = event.record, event.header
    key, key_base64 = text_or_base64(record.key)
    value, value_base64 = text_or_base64(record.value)
    headers = []
    for name, content in record.headers:
        text, encoded = text_or_base64(content)
        headers.append(TailHeader(name=name, value=text, value_base64=encoded))
    return TailRecord(
        type="record",
        topic=event.where.topic,
        partition=event.where.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        outcome=event.fate.value,
        transactional_id=event.transactional_id,
        producer_id=header.producer_id if header.producer_id >= 0 else None,
        producer_epoch=header.producer_epoch if header.producer_id >= 0 else None,
        key=key,
        key_base64=key_base64,
        value=value,
        value_base64=value_base64,
        headers=tuple(headers),
        compression=CODECS[header.codec],
    )


def text_or_base64(data: bytes | None) -> tuple[str | None, str | None]:
    """Bytes as text if they are UTF-8, else in Base64; at most one of the two is there."""
    if data is None:
        return None, None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(data).decode()


SHOWN_CHARS = 100
UNKNOWN_ID = "(unknown id)"


def safe_text(text: str) -> str:
    """The text without invisible characters. A backslash is doubled: in a value, it must not look like an escape."""
    return printable(text.replace("\\", "\\\\"))


def shown_bytes(data: bytes | None, most_chars: int | None = SHOWN_CHARS) -> str:
    """Bytes as safe text: UTF-8 as it is, anything else as hexadecimal digits; what is long is cut, with its size."""
    if data is None:
        return "null"
    try:
        text = safe_text(data.decode())
    except UnicodeDecodeError:
        text = f"0x{data.hex()}"
    if most_chars is None or len(text) <= most_chars:
        return text
    return f"{text[:most_chars]}… ({counted(len(data), 'byte')})"


def outcome_of(event: ReadRecord | ReadMarker | EndedOffsets) -> str:
    return "marker" if isinstance(event, ReadMarker) else event.fate.value


def line_of(event: ReadRecord | ReadMarker | EndedOffsets, most_chars: int | None, outcome: str | None = None) -> str:
    """One line; `outcome` is the word for the outcome, padded and perhaps coloured."""
    word = outcome if outcome is not None else f"{outcome_of(event):<9}"
    if isinstance(event, EndedOffsets):
        return _ended_line(event, word.strip() if outcome is None else outcome)
    if isinstance(event, ReadMarker):
        marker = event.marker
        what = "COMMIT" if marker.commit else "ABORT"
        who = _who(event.transactional_id, marker.producer_id, marker.producer_epoch)
        return f"{event.where}  {event.offset:>8}  {instant(marker.timestamp)}  {word}  {what} of {who}"
    record, header = event.record, event.header
    parts = [f"{event.where}  {record.offset:>8}  {instant(record.timestamp)}  {word}"]
    if event.fate is not Fate.PLAIN:
        parts.append(_who(event.transactional_id, header.producer_id, header.producer_epoch))
    parts.append(f"key={shown_bytes(record.key, most_chars)}")
    parts.append(f"value={shown_bytes(record.value, most_chars)}")
    parts += [f"header:{safe_text(name)}={shown_bytes(value, most_chars)}" for name, value in record.headers]
    return "  ".join(parts)


def _ended_line(event: EndedOffsets, word: str) -> str:
    offsets = event.offsets
    span = (
        f"offset {offsets.first_offset}"
        if offsets.first_offset == offsets.last_offset
        else f"offsets {offsets.first_offset}-{offsets.last_offset}"
    )
    who = _who(event.transactional_id, offsets.producer_id, offsets.producer_epoch)
    by = f" by the marker at {event.marker_offset}" if event.marker_offset is not None else ""
    if event.fate is Fate.UNKNOWN:
        by = ": it has ended, but its marker was deleted before it was read"
    return f"{event.where}  {span} of {who}: {word}{by}"


def _who(transactional_id: str | None, producer_id: int, producer_epoch: int) -> str:
    name = safe_text(transactional_id) if transactional_id is not None else UNKNOWN_ID
    return f"{name} (producer {producer_id}, epoch {producer_epoch})"
