"""Reads `__transaction_state`: the records of one transactional id, or the last records of every id."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from threading import Lock
from typing import NamedTuple

from fencepost.client.admin.answers import Answers, NamedPartition
from fencepost.client.admin.partitions import EARLIEST, list_offsets, partitions_of
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.fetching import read_batches
from fencepost.diagnose.collect.look import now_ms
from fencepost.diagnose.snapshot import TXN_TOPIC, LogEntry
from fencepost.machines.txn.records import decode_key, decode_value, encode_key, partition_for
from fencepost.protocol import errors
from fencepost.protocol.records import iter_records

Progress = Callable[[int, int], None]  # Offsets that are read, and offsets in total.
FIRST_WINDOW = 4096
RECENT_MS = 900_000
RECENT_ENTRIES = 40
MOST_FOLLOWED_IDS = 200
MOST_FOLLOWED_ENTRIES = 200


def no_progress(done: int, total: int) -> None:
    pass


def state_log_of(client: KafkaClient, transactional_id: str) -> NamedPartition | None:
    """The partition of `__transaction_state` that keeps an id; None while the cluster has had no transaction."""
    count = len(log_partitions(client))
    return NamedPartition(TXN_TOPIC, partition_for(transactional_id, count)) if count else None


def has_state_log(client: KafkaClient) -> bool:
    """Whether the cluster has had a transaction; also True if the user is not allowed to know."""
    try:
        return TXN_TOPIC in client.refresh([TXN_TOPIC])
    except BrokerError:
        return True


def log_partitions(client: KafkaClient) -> list[NamedPartition]:
    """The partitions of `__transaction_state`, which is created when the first id registers."""
    try:
        return partitions_of(client, [TXN_TOPIC])
    except BrokerError as e:
        if e.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return []


Span = tuple[int, int]  # The first offset of a partition, and the one after its last.


def _spans(client: KafkaClient, partitions: Collection[NamedPartition]) -> Answers[NamedPartition, Span]:
    start = list_offsets(client, partitions, timestamp=EARLIEST)
    end = list_offsets(client, partitions)
    found = {where: (start.found[where], last) for where, last in end.found.items() if where in start.found}
    return Answers(found, list(dict.fromkeys(start.problems + end.problems)))


def read_log(
    client: KafkaClient, where: NamedPartition | None, transactional_id: str, wanted: int | None, progress: Progress
) -> tuple[LogEntry, ...]:
    """At least the last `wanted` entries of an id (None: all of them); none if there is no log yet.

    Reads the log backwards in growing windows, because the wanted entries are usually at its end.
    """
    if where is None:
        return ()
    spans = _spans(client, [where])
    if spans.problems:
        raise BrokerError(errors.LEADER_NOT_AVAILABLE, "reading transactions", spans.problems[0])
    start, end = spans.found[where]
    total = end - start
    entries: list[LogEntry] = []
    window = FIRST_WINDOW if wanted is not None else total
    upper = end
    while upper > start and (wanted is None or len(entries) < wanted):
        lower = max(start, upper - window)
        entries = [*_entries_between(client, where, transactional_id, lower, upper, end, total, progress), *entries]
        upper, window = lower, window * 2
    return tuple(entries)


def _entries_between(
    client: KafkaClient,
    where: NamedPartition,
    transactional_id: str,
    lower: int,
    upper: int,
    end: int,
    total: int,
    progress: Progress,
) -> list[LogEntry]:
    key = encode_key(transactional_id)
    entries = []
    for header, batch in read_batches(client, where, lower, upper):
        progress(end - upper + max(header.last_offset + 1 - lower, 0), total)
        # Most batches are of other ids, and searching the bytes is much cheaper than decoding them.
        if header.codec == 0 and key not in bytes(batch):
            continue
        for record in iter_records(batch):
            if record.key != key or not lower <= record.offset < upper:
                continue
            txn = decode_value(transactional_id, record.value) if record.value is not None else None
            if txn is not None or record.value is None:
                entries.append(LogEntry(offset=record.offset, timestamp_ms=record.timestamp, txn=txn))
    return entries


class Known(NamedTuple):
    """The entries of an id in one partition, up to an offset."""

    where: NamedPartition
    # A log that was created anew has another id.
    topic_id: bytes
    entries: tuple[LogEntry, ...]
    up_to: int


class LogFollower:
    """Reads the entries of some ids again and again; after the first time, only what is new. For several threads."""

    def __init__(self, most_ids: int = MOST_FOLLOWED_IDS) -> None:
        self._most_ids = most_ids
        self._known: dict[str, Known] = {}
        self._lock = Lock()

    def read(
        self, client: KafkaClient, where: NamedPartition | None, transactional_id: str, wanted: int, progress: Progress
    ) -> tuple[LogEntry, ...]:
        """As `read_log`."""
        if where is None:
            return ()
        spans = _spans(client, [where])
        with self._lock:
            known = self._known.pop(transactional_id, None)
        start, end = spans.found.get(where, (0, -1))
        topic_id = client.topic(where.topic).topic_id
        is_same = known is not None and (known.where, known.topic_id) == (where, topic_id)
        if known is not None and is_same and start <= known.up_to <= end:
            total = end - known.up_to
            new = _entries_between(client, where, transactional_id, known.up_to, end, end, total, progress)
            entries = (*known.entries, *new)
        else:
            # Without an answer about the span, this raises.
            entries = read_log(client, where, transactional_id, wanted, progress)
        # The end was asked for first: an entry behind it, if there is one, is read again next time.
        entries = tuple(entry for entry in entries if entry.offset < end)[-MOST_FOLLOWED_ENTRIES:]
        with self._lock:
            self._known[transactional_id] = Known(where, topic_id, entries, end)
            while len(self._known) > self._most_ids:
                del self._known[next(iter(self._known))]
        return entries


def collect_last_steps(client: KafkaClient, transactional_id: str, wanted: int) -> tuple[LogEntry, ...]:
    """At least the last `wanted` records of an id; none if the log cannot be read."""
    try:
        where = state_log_of(client, transactional_id)
        return read_log(client, where, transactional_id, wanted, no_progress)
    except ClientError:
        return ()


class StateMemory(NamedTuple):
    """What `__transaction_state` says about every transactional id."""

    # When each id was last written; ids that have expired are left out.
    updated_ms: dict[str, int]
    # The records of the last minutes, oldest first.
    recent: dict[str, tuple[LogEntry, ...]]
    # Partitions that could not be read.
    problems: tuple[str, ...]


def read_state_memory(client: KafkaClient, progress: Progress) -> StateMemory:
    """Read all of `__transaction_state` once."""
    spans = _spans(client, log_partitions(client))
    since_ms = now_ms() - RECENT_MS
    updated: dict[str, int] = {}
    recent: dict[str, deque[LogEntry]] = {}
    for transactional_id, entry in _every_entry(client, spans.found, progress):
        if entry.txn is None:
            updated.pop(transactional_id, None)
        else:
            updated[transactional_id] = entry.txn.updated_ms
        if entry.timestamp_ms >= since_ms:
            recent.setdefault(transactional_id, deque(maxlen=RECENT_ENTRIES)).append(entry)
    return StateMemory(updated, {id_: tuple(entries) for id_, entries in recent.items()}, tuple(spans.problems))


def _every_entry(
    client: KafkaClient, spans: Mapping[NamedPartition, Span], progress: Progress
) -> Iterator[tuple[str, LogEntry]]:
    """Every record with its transactional id; those of one id come oldest first."""
    total, done = sum(end - start for start, end in spans.values()), 0
    for where, (start, end) in spans.items():
        for header, batch in read_batches(client, where, start, end):
            for record in iter_records(batch):
                transactional_id = decode_key(record.key) if record.key else None
                if transactional_id is not None:
                    txn = decode_value(transactional_id, record.value) if record.value else None
                    yield transactional_id, LogEntry(offset=record.offset, timestamp_ms=record.timestamp, txn=txn)
            progress(done + max(header.last_offset + 1 - start, 0), total)
        done += end - start
