"""The last reads of a run, when all is at rest: every log, its watermarks, what readers get, and groups' offsets.

A partition is noted when it is read to its end, and else not at all: the checkers take what is noted for the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.offsets import committed_offsets
from fencepost.client.admin.partitions import READ_COMMITTED, READ_UNCOMMITTED, list_offsets, read_batches
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.protocol.batch import decode_marker
from fencepost.protocol.records import iter_records
from fencepost.verify.history import Assign, Committed, Event, Poll, Watermarks, WholeLog
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.reading import PAUSE_S, fetch_once, start_of

BY = "last-reader"
ENTRIES_PER_EVENT = 1000
# How long a cluster may not answer: a failover takes seconds, and a broker that starts again up to a minute.
PATIENCE_S = 60.0
# A read that does not get on for so long is begun again, from the watermarks on.
STANDSTILL_S = 2.0
AGAIN_AFTER_S = 0.5
Entry = tuple[int, str, str | None, int, int]  # Of `WholeLog`.
T = TypeVar("T")
Say = Callable[[str], None]


def await_rest(
    client: KafkaClient,
    topics: Mapping[str, int],
    rest_s: float,
    say: Say = lambda _: None,
    patience_s: float = PATIENCE_S,
) -> bool:
    """Wait until no partition has an open transaction; False if one still has after `rest_s`.

    Raises ClientError if the cluster does not answer for `patience_s`.
    """
    deadline = time.monotonic() + rest_s
    places = _partitions(topics)
    while any(
        lso < end for lso, end in _patiently(lambda: _watermarks(client, places), "the cluster", say, patience_s)
    ):
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)
    return True


def last_reads(
    client: KafkaClient,
    topics: Mapping[str, int],
    groups: Mapping[str, str],
    note: Callable[[Event], None],
    say: Say = lambda _: None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Raises ClientError if the cluster does not answer for `patience_s`. What was read until then is noted."""
    for where in _partitions(topics):
        for event in _patiently(lambda where=where: _read(client, where), str(where), say, patience_s):  # type: ignore[misc]
            note(event)
    for group_id, topic in groups.items():
        wanted = [(topic, index) for index in range(topics[topic])]
        found = committed_offsets(client, group_id, wanted)
        note(Committed(now(), BY, group_id, [(*where, offset) for where, (offset, _) in sorted(found.items())]))


def _partitions(topics: Mapping[str, int]) -> list[NamedPartition]:
    return [NamedPartition(topic, index) for topic, count in topics.items() for index in range(count)]


def _patiently(read: Callable[[], T], what: str, say: Say, patience_s: float) -> T:
    """What is read in the end. Raises the last ClientError if there is nothing but errors for `patience_s`."""
    deadline, is_said = time.monotonic() + patience_s, False
    while True:
        try:
            return read()
        except ClientError as e:
            if time.monotonic() > deadline:
                raise
            if not is_said:
                is_said = True
                say(f"{what} cannot be read now; trying again for up to {patience_s:g} s: {str(e).splitlines()[0]}")
            time.sleep(AGAIN_AFTER_S)


def _watermarks(client: KafkaClient, places: Iterable[NamedPartition]) -> list[tuple[int, int]]:
    """The last stable offset and the high watermark of each partition, asked for in this order. Raises ClientError."""
    wanted = list(places)
    answers = [list_offsets(client, wanted, level) for level in (READ_COMMITTED, READ_UNCOMMITTED)]
    for answer in answers:
        if answer.found.keys() != set(wanted):
            raise ClientError(next(iter(answer.problems), "the ends of the partitions are unknown"))
    stable, high = answers
    return [(stable.found[where], high.found[where]) for where in wanted]


def _read(client: KafkaClient, where: NamedPartition) -> list[Event]:
    """One partition from its beginning to its end. Raises ClientError."""
    [(lso, end)] = _watermarks(client, [where])
    log = list(_log(client, where, end))
    polls = list(_committed(client, where, lso))
    return [
        Watermarks(now(), BY, *where, lso, end),
        *(WholeLog(now(), BY, *where, entries) for entries in _chunks(log)),
        Assign(now(), BY, "read_committed", *where, 0),
        *(Poll(now(), BY, *where, records) for records in polls),
    ]


def _log(client: KafkaClient, where: NamedPartition, end: int) -> Iterator[Entry]:
    start = following = start_of(client, *where)
    for header, batch in read_batches(client, where, start, end):
        following = header.last_offset + 1
        who = header.producer_id, header.producer_epoch
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                yield header.base_offset, "commit" if marker.commit else "abort", None, *who
            continue
        for record in iter_records(batch):
            yield record.offset, "data", (record.value or b"").decode(), *who
    if following < end:
        raise _cut_off(where, following, end)


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    return (entries[first : first + ENTRIES_PER_EVENT] for first in range(0, len(entries), ENTRIES_PER_EVENT))


def _committed(client: KafkaClient, where: NamedPartition, end: int) -> Iterator[list[tuple[int, str]]]:
    offset, moved_at_s = 0, time.monotonic()
    while offset < end:
        found = fetch_once(client, *where, offset, READ_COMMITTED)
        if not found.has_answer or found.next_offset == offset:
            if time.monotonic() > moved_at_s + STANDSTILL_S:
                raise _cut_off(where, offset, end)
            time.sleep(PAUSE_S)
            continue
        if found.records:
            yield list(found.records)
        offset, moved_at_s = found.next_offset, time.monotonic()


def _cut_off(where: NamedPartition, offset: int, end: int) -> ClientError:
    return ClientError(f"{where} could not be read beyond offset {offset} of {end}")
