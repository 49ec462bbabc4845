"""The commit note: a note about itself that each transaction of the sink leaves in Kafka.

It names the query and the micro-batch of the transaction, with a digest of the micro-batch's source offsets.
The note is offset metadata in a group of the sink's own, on partition 0 of every topic that the transaction wrote to.
It is part of the transaction, so it is there if and only if the records are. The offset itself says nothing:
`note_offsets.py`.

A plain frame that is written with a token leaves a token note in the same way, in a group for that token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from fencepost.client.admin.groups import COMMIT_NOTES, TOKEN_NOTES
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.offsets import lowest, nested, parse_kafka_ends

# Stored on clusters, so the name stays, although the word marker means something else in Kafka.
NOTE_VERSION = 1
MAX_NOTE_BYTES = 4096  # The default of offset.metadata.max.bytes.


@dataclass(frozen=True, slots=True)
class CommitNote:
    query_id: str
    batch_id: int
    digest: str
    # Counts the transactions that left a note: the highest number is the last transaction.
    number: int = 0
    # When Spark planned the micro-batch. Notes of earlier versions lack it and the ends.
    planned_ms: int | None = None
    # Where the micro-batch ends in its Kafka sources. None: it has none, or too many partitions for a note, or two of
    # them are at different offsets of one partition.
    ends: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class TokenNote:
    """A plain frame was written with this token. The same token writes nothing more."""

    token: str
    topic: str | None  # As given; None: the topics are in a column.
    records: int = 0
    micro_batch: str | None = None  # Whose foreachBatch function wrote it. Notes of earlier versions lack it.


@dataclass(frozen=True, slots=True)
class UnreadableNote:
    """Offset metadata in the place of a note, in a form that this version does not know."""

    text: str


def note_group(transactional_id: str) -> str:
    """The group that holds the notes of a transactional id."""
    return COMMIT_NOTES + transactional_id


def token_group(transactional_id: str, token: str) -> str:
    """The group that holds the note of a token. Quoted, so that no two pairs have the same group."""
    return f"{TOKEN_NOTES}{quote(transactional_id, safe='')}:{token}"


def encode_note(note: CommitNote | TokenNote) -> str:
    """Raises ValueError if a broker would not take it."""
    fields: dict[str, object] = {"fencepost": NOTE_VERSION}
    if isinstance(note, TokenNote):
        fields |= {"token": note.token, "topic": note.topic, "records": note.records}
        fields |= {"micro_batch": note.micro_batch} if note.micro_batch is not None else {}
    else:
        fields |= {"query": note.query_id, "batch": note.batch_id, "digest": note.digest, "number": note.number}
        fields |= {"planned": note.planned_ms} if note.planned_ms is not None else {}
        fields |= {"ends": nested(note.ends)} if note.ends else {}
    text = json.dumps(fields, separators=(",", ":"))
    if len(text) > MAX_NOTE_BYTES:
        raise ValueError(f"a commit note of {len(text)} bytes; offset metadata takes {MAX_NOTE_BYTES}")
    return text


def with_ends(note: CommitNote, ends: Mapping[TopicPartition, int]) -> CommitNote:
    """The note with the ends of its micro-batch, if a broker would take it."""
    complete = replace(note, ends=ends or None)
    try:
        encode_note(complete)
    except ValueError:
        return note
    return complete


def without_ends(note: CommitNote | TokenNote) -> CommitNote | TokenNote:
    return replace(note, ends=None) if isinstance(note, CommitNote) else note


def decode_note(text: str) -> CommitNote | UnreadableNote:
    query_id, batch_id, digest, number = _fields(text, "query", "batch", "digest", "number")
    planned_ms, given_ends = _fields(text, "planned", "ends")
    ends = None if given_ends is None else parse_kafka_ends(json.dumps(given_ends))
    if not (isinstance(query_id, str) and isinstance(digest, str) and type(batch_id) is int and type(number) is int):
        return UnreadableNote(text)
    if (given_ends is not None and ends is None) or not (planned_ms is None or isinstance(planned_ms, int)):
        return UnreadableNote(text)
    return CommitNote(query_id, batch_id, digest, number, planned_ms, lowest([ends]) if ends else None)


def decode_token_note(text: str) -> TokenNote | UnreadableNote:
    token, topic, records, micro_batch = _fields(text, "token", "topic", "records", "micro_batch")
    if (
        isinstance(token, str)
        and (topic is None or isinstance(topic, str))
        and type(records) is int
        and (micro_batch is None or isinstance(micro_batch, str))
    ):
        return TokenNote(token, topic, records, micro_batch)
    return UnreadableNote(text)


def _fields(text: str, *names: str) -> list[object]:
    """The values with these names, each None if the text is no note or lacks it."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    is_note = isinstance(document, dict) and document.get("fencepost") == NOTE_VERSION
    return [document.get(name) if is_note else None for name in names]


def newest(notes: Iterable[CommitNote | UnreadableNote]) -> CommitNote | UnreadableNote | None:
    """The note of the last transaction, among those found on the output topics.

    A topic that is no longer written to keeps an old note. An unreadable note may be the last one, so it wins.
    """
    found = list(notes)
    unreadable = next((note for note in found if isinstance(note, UnreadableNote)), None)
    readable = [note for note in found if isinstance(note, CommitNote)]
    return unreadable or max(readable, key=lambda n: (n.number, n.batch_id, n.ends is not None), default=None)
