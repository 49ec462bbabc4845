"""The last reads of a run, when all is at rest: every log, its watermarks, what readers get, and groups' offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.offsets import committed_offsets
from fencepost.client.admin.partitions import READ_COMMITTED, end_offset, read_batches
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.protocol.batch import decode_marker
from fencepost.protocol.records import iter_records
from fencepost.verify.history import Assign, Committed, Event, Poll, Watermarks, WholeLog
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.reading import PAUSE_S, fetch_once, start_of

BY = "last-reader"
ENTRIES_PER_EVENT = 1000
Entry = tuple[int, str, str | None, int, int]  # Of `WholeLog`.


def await_rest(client: KafkaClient, topics: Mapping[str, int], patience_s: float) -> bool:
    """Wait until no partition has an open transaction; False if one still has at the end."""
    deadline = time.monotonic() + patience_s
    while any(lso < end for _, lso, end in _watermarks(client, topics)):
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)
    return True


def last_reads(
    client: KafkaClient, topics: Mapping[str, int], groups: Mapping[str, str], note: Callable[[Event], None]
) -> None:
    """Raises ClientError if the cluster does not answer."""
    for where, lso, end in _watermarks(client, topics):
        note(Watermarks(now(), BY, *where, lso, end))
        for entries in _chunks(_log(client, where, end)):
            note(WholeLog(now(), BY, *where, entries))
        note(Assign(now(), BY, "read_committed", *where, 0))
        for records in _committed(client, where, lso):
            note(Poll(now(), BY, *where, records))
    for group_id, topic in groups.items():
        wanted = [(topic, index) for index in range(topics[topic])]
        found = committed_offsets(client, group_id, wanted)
        note(Committed(now(), BY, group_id, [(*where, offset) for where, (offset, _) in sorted(found.items())]))


def _watermarks(client: KafkaClient, topics: Mapping[str, int]) -> Iterator[tuple[NamedPartition, int, int]]:
    """Each partition with its last stable offset and its high watermark, asked for in this order."""
    for topic, count in topics.items():
        for index in range(count):
            stable = end_offset(client, topic, index, read_committed=True)
            yield NamedPartition(topic, index), stable, end_offset(client, topic, index, read_committed=False)


def _log(client: KafkaClient, where: NamedPartition, end: int) -> Iterator[Entry]:
    for header, batch in read_batches(client, where, start_of(client, *where), end):
        who = header.producer_id, header.producer_epoch
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                yield header.base_offset, "commit" if marker.commit else "abort", None, *who
            continue
        for record in iter_records(batch):
            yield record.offset, "data", (record.value or b"").decode(), *who


def _chunks(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    chunk: list[Entry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == ENTRIES_PER_EVENT:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _committed(client: KafkaClient, where: NamedPartition, end: int) -> Iterator[list[tuple[int, str]]]:
    offset, failures = 0, 0
    while offset < end:
        found = fetch_once(client, *where, offset, READ_COMMITTED)
        if not found.has_answer or found.next_offset == offset:
            failures += 1
            if failures > 100:
                raise ClientError(f"{where} could not be read beyond offset {offset} of {end}")
            time.sleep(PAUSE_S)
            continue
        if found.records:
            yield list(found.records)
        offset = found.next_offset
