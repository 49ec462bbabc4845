"""Offsets on their way into a group, split into requests that every coordinator takes.

A coordinator appends the offsets of a request as one record batch. If the batch is larger than the `max.message.bytes`
of `__consumer_offsets` (1,048,588 by default), Apache Kafka answers UNKNOWN_SERVER_ERROR, at every retry. Each record
repeats the names of group and topic, so the size of the request itself says little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# A quarter of the default, for clusters that allow less.
MOST_APPENDED_BYTES = 256 << 10
# What a record takes beside its names and its metadata: Apache Kafka 4.3.1 writes up to 53 bytes.
RECORD_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: int
    metadata: str = ""


def split_offsets(
    group_id: str, offsets: Iterable[OffsetToCommit], most_bytes: int = MOST_APPENDED_BYTES
) -> list[dict[str, list[OffsetToCommit]]]:
    """The offsets of each request, by topic: one request at least. An offset that is too large alone goes alone."""
    requests: list[dict[str, list[OffsetToCommit]]] = [{}]
    size = 0
    for offset in offsets:
        added = _record_bytes(group_id, offset)
        if requests[-1] and size + added > most_bytes:
            requests.append({})
            size = 0
        size += added
        requests[-1].setdefault(offset.topic, []).append(offset)
    return requests


def _record_bytes(group_id: str, offset: OffsetToCommit) -> int:
    return RECORD_OVERHEAD_BYTES + sum(len(text.encode()) for text in (group_id, offset.topic, offset.metadata))
