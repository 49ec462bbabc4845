"""The commit note: what each transaction of the sink leaves in Kafka about itself.

It says which query and which micro-batch the transaction was for, with a digest of the micro-batch's source offsets.
The note is offset metadata in a group of the sink's own, on partition 0 of every topic that the transaction wrote to.
It is part of the transaction, so it is there if and only if the records are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

# Stored on clusters, so the name stays, although the word marker means something else in Kafka.
NOTE_GROUP_PREFIX = "fencepost-marker-"
NOTE_VERSION = 1
MAX_NOTE_BYTES = 4096  # The default of offset.metadata.max.bytes.


@dataclass(frozen=True, slots=True)
class CommitNote:
    query_id: str
    batch_id: int
    digest: str
    # Counts the transactions that left a note: the highest number is the last transaction.
    number: int = 0


@dataclass(frozen=True, slots=True)
class UnreadableNote:
    """Offset metadata in the place of a note, in a form that this version does not know."""

    text: str


def note_group(transactional_id: str) -> str:
    """The group that holds the notes of a transactional id."""
    return NOTE_GROUP_PREFIX + transactional_id


def encode_note(note: CommitNote) -> str:
    """Raises ValueError if a broker would not take it."""
    fields = {
        "fencepost": NOTE_VERSION,
        "query": note.query_id,
        "batch": note.batch_id,
        "digest": note.digest,
        "number": note.number,
    }
    text = json.dumps(fields, separators=(",", ":"))
    if len(text) > MAX_NOTE_BYTES:
        raise ValueError(f"a commit note of {len(text)} bytes; offset metadata takes {MAX_NOTE_BYTES}")
    return text


def decode_note(text: str) -> CommitNote | UnreadableNote:
    try:
        fields = json.loads(text)
    except ValueError:
        return UnreadableNote(text)
    if not isinstance(fields, dict) or fields.get("fencepost") != NOTE_VERSION:
        return UnreadableNote(text)
    query_id, batch_id, digest, number = (fields.get(name) for name in ("query", "batch", "digest", "number"))
    if isinstance(query_id, str) and isinstance(digest, str) and type(batch_id) is int and type(number) is int:
        return CommitNote(query_id, batch_id, digest, number)
    return UnreadableNote(text)


def newest(notes: Iterable[CommitNote | UnreadableNote]) -> CommitNote | UnreadableNote | None:
    """The note of the last transaction, among those found on the output topics.

    A topic that is no longer written to keeps an old note. An unreadable note may be the last one, so it wins.
    """
    found = list(notes)
    unreadable = next((note for note in found if isinstance(note, UnreadableNote)), None)
    readable = [note for note in found if isinstance(note, CommitNote)]
    return unreadable or max(readable, key=lambda note: (note.number, note.batch_id), default=None)
