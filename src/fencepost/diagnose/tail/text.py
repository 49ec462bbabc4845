"""Records as lines for a terminal. Keys and values are untrusted bytes: none of them may reach the terminal raw."""

from __future__ import annotations

from fencepost.counting import counted
from fencepost.diagnose.tail.documents import EndedOffsets, ReadMarker, ReadRecord
from fencepost.diagnose.tail.outcomes import Fate
from fencepost.diagnose.words import instant
from fencepost.printable import printable

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
