"""The last reads of a run, when all is at rest: every log, its watermarks, what readers get, and groups' offsets.

The checkers take what is noted of a partition for the whole. So a partition that the cluster does not answer for, or
only with errors, is not noted at all. If the answers have no error and stop before the end, they are noted: the records
that are missing then are lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.offsets import committed_offsets
from fencepost.client.admin.partitions import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.fetching import read_batches
from fencepost.counting import counted
from fencepost.protocol.batch import decode_marker
from fencepost.protocol.records import iter_records
from fencepost.verify.history import Assign, Committed, Event, Poll, Watermarks, WholeLog
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.reading import PAUSE_S, fetch_once, start_of

BY = "last-reader"
ENTRIES_PER_EVENT = 1000
# How long a cluster may not answer: a failover takes seconds, and a broker that starts again up to a minute.
PATIENCE_S = 60.0
# After a partition that could not be read: the cluster has had its time to come back.
LATER_PATIENCE_S = 10.0
GROUP_DEADLINE_S = 5.0
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


class CutOff(ClientError):
    """The answers of a partition have no error, and no records from an offset on that is below its end."""

    def __init__(self, where: NamedPartition, offset: int, end: int, events: Sequence[Event]) -> None:
        super().__init__(f"{where} has no records beyond offset {offset} of {end}")
        self.events = events


def last_reads(
    client: KafkaClient,
    topics: Mapping[str, int],
    groups: Mapping[str, str],
    note: Callable[[Event], None],
    say: Say = lambda _: None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Read and note everything that can be read.

    Raises ClientError at the end if something was not answered for `patience_s`, or only with errors.
    """
    unread: dict[str, ClientError] = {}
    for what, read in _all_reads(client, topics, groups):
        try:
            events = _patiently(read, what, say, min(patience_s, LATER_PATIENCE_S) if unread else patience_s)
        except CutOff as e:
            say(f"{e}, and no error: what is missing is judged as lost")
            events = e.events
        except ClientError as e:
            unread[what] = e
            continue
        for event in events:
            note(event)
    for what, error in unread.items():
        others = f" and {counted(len(unread) - 1, 'other')}" if len(unread) > 1 else ""
        raise ClientError(f"{what}{others}: {error}")


def _all_reads(
    client: KafkaClient, topics: Mapping[str, int], groups: Mapping[str, str]
) -> Iterator[tuple[str, Callable[[], Sequence[Event]]]]:
    for where in _partitions(topics):
        yield str(where), partial(_read, client, where)
    for group_id, topic in groups.items():
        yield f"group {group_id}", partial(_read_offsets, client, group_id, topic, topics[topic])


def _read_offsets(client: KafkaClient, group_id: str, topic: str, partitions: int) -> list[Event]:
    wanted = [(topic, index) for index in range(partitions)]
    found = committed_offsets(client, group_id, wanted, deadline_s=GROUP_DEADLINE_S)
    return [Committed(now(), BY, group_id, [(*where, offset) for where, (offset, _) in sorted(found.items())])]


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
    """One partition from its beginning to its end. Raises CutOff and other ClientErrors."""
    [(lso, end)] = _watermarks(client, [where])
    log, log_end = _log(client, where, end)
    polls, polls_end = _committed(client, where, lso)
    events: list[Event] = [
        Watermarks(now(), BY, *where, lso, end),
        *(WholeLog(now(), BY, *where, entries) for entries in _chunks(log)),
        Assign(now(), BY, "read_committed", *where, 0),
        *(Poll(now(), BY, *where, records) for records in polls),
    ]
    for reached, wanted in ((log_end, end), (polls_end, lso)):
        if reached < wanted:
            raise CutOff(where, reached, wanted, events)
    return events


def _log(client: KafkaClient, where: NamedPartition, end: int) -> tuple[list[Entry], int]:
    """The log, and the offset where the answers stop: errors are raised, so these answers have none."""
    start = following = start_of(client, *where)
    entries: list[Entry] = []
    for header, batch in read_batches(client, where, start, end):
        following = header.last_offset + 1
        who = header.producer_id, header.producer_epoch
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                entries.append((header.base_offset, "commit" if marker.commit else "abort", None, *who))
            continue
        entries += [(r.offset, "data", (r.value or b"").decode(), *who) for r in iter_records(batch)]
    return entries, following


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    return (entries[first : first + ENTRIES_PER_EVENT] for first in range(0, len(entries), ENTRIES_PER_EVENT))


def _committed(client: KafkaClient, where: NamedPartition, end: int) -> tuple[list[list[tuple[int, str]]], int]:
    """What read_committed readers get, and the offset where the answers stop. Raises ClientError without an answer."""
    polls: list[list[tuple[int, str]]] = []
    offset, moved_at_s = 0, time.monotonic()
    while offset < end:
        found = fetch_once(client, *where, offset, READ_COMMITTED)
        if found.has_answer and found.next_offset > offset:
            polls += [list(found.records)] if found.records else []
            offset, moved_at_s = found.next_offset, time.monotonic()
        elif time.monotonic() <= moved_at_s + STANDSTILL_S:
            time.sleep(PAUSE_S)
        elif found.has_answer:
            break
        else:
            raise ClientError(f"{where} could not be read beyond offset {offset} of {end}")
    return polls, offset
