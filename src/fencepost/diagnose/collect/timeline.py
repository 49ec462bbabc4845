"""Collects a transactional id with the batches of one of its rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Lock
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import EARLIEST, list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.fetching import read_batches
from fencepost.diagnose.collect.look import see_all
from fencepost.diagnose.collect.state_log import LogFollower, state_log_of
from fencepost.diagnose.collect.transactions import Search, collect_txn
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, TxnSnapshot
from fencepost.diagnose.timeline.rounds import Round, SeenBatch, choose, rounds_of
from fencepost.diagnose.timeline.timeline import TimelineSnapshot, partitions_shown
from fencepost.machines.group.offsets import OffsetRecord
from fencepost.machines.group.records import decode
from fencepost.protocol.batch import BatchHeader, Buffer, Corrupt, decode_marker
from fencepost.protocol.records import iter_records
from fencepost.protocol.schema import Malformed

# How much of each partition is read for the batches of one round; and as much again before the round.
SEARCHED_BYTES = 1 << 20
# Producers choose the timestamps, so the first records may be before the offset that the time of the round leads to.
SEARCHED_BEFORE = 200
# Of rounds that have ended, so many are kept, unless one has more batches than this.
MOST_KEPT_ROUNDS = 100
MOST_KEPT_BATCHES = 2000
Batches = Mapping[NamedPartition, tuple[SeenBatch, ...]]


class Timelines:
    """Collects timelines again and again: what cannot change any more is read once. For several threads."""

    def __init__(self) -> None:
        self._log = LogFollower()
        self._ended: dict[tuple[str, int, int], Batches] = {}
        self._lock = Lock()

    def collect(
        self, client: KafkaClient, transactional_id: str, round_key: int | None = None, search: Search = see_all
    ) -> TimelineSnapshot:
        """One transactional id, and the batches of the round with this key, or of its last round."""
        txn = collect_txn(client, transactional_id, read=self._log.read, search=search)
        try:
            log = state_log_of(client, transactional_id)
        except ClientError:
            log = None  # `txn.problems` says why.
        round_ = choose(rounds_of(txn.history or ()), round_key)
        batches, problems = self._batches(client, txn, round_) if round_ is not None else ({}, [])
        return TimelineSnapshot(txn=txn, log=log, round_key=round_key, batches=batches, problems=tuple(problems))

    def _batches(self, client: KafkaClient, txn: TxnSnapshot, round_: Round) -> tuple[Batches, list[str]]:
        key = (txn.transactional_id, round_.key, round_.first_ms)
        has_ended = round_.completed is not None and not txn.leftovers
        with self._lock:
            known = self._ended.get(key) if has_ended else None
        if known is not None:
            return known, []
        batches, problems = _search_all(client, txn, round_)
        if has_ended and not problems and sum(map(len, batches.values())) <= MOST_KEPT_BATCHES:
            with self._lock:
                self._ended[key] = batches
                while len(self._ended) > MOST_KEPT_ROUNDS:
                    del self._ended[next(iter(self._ended))]
        return batches, problems


class _Start(NamedTuple):
    """Where the search of a partition begins, and the offset to which the time of the round leads."""

    before: int
    at: int


def _search_all(client: KafkaClient, txn: TxnSnapshot, round_: Round) -> tuple[Batches, list[str]]:
    """The batches around a round on each of its partitions, and what could not be read."""
    batches: dict[NamedPartition, tuple[SeenBatch, ...]] = {}
    starts, problems = _starts(client, txn, round_)
    for where, start in starts.items():
        try:
            found, is_all = _search(client, where, start, txn.ends[where].high_watermark, txn.producer_ids)
        except (ClientError, Corrupt) as e:
            problems.append(f"the records on {where} cannot be read: {e}")
            continue
        batches[where] = found
        if not is_all and not any(b.marker is not None and b.marker.timestamp >= round_.first_ms for b in found):
            problems.append(f"only {SEARCHED_BYTES >> 10} KiB of {where} were searched, from offset {start.at} on")
    return batches, problems


def _starts(client: KafkaClient, txn: TxnSnapshot, round_: Round) -> tuple[Mapping[NamedPartition, _Start], list[str]]:
    """For each partition of the round, where its batches are searched; and why others are not."""
    hanging = {open_.where: open_.start_offset for open_ in txn.leftovers} if round_.is_last else {}
    partitions = list(dict.fromkeys((*partitions_shown(round_), *sorted(hanging))))
    wanted = [where for where in partitions if where in txn.ends]
    first = list_offsets(client, wanted, timestamp=EARLIEST)
    by_time = list_offsets(client, wanted, timestamp=max(round_.first_ms, 0))
    problems = [
        f"the records on {where} are not shown: the partition does not exist, or its end is unknown"
        for where in partitions
        if where not in txn.ends
    ]
    found = {}
    for where in wanted:
        if where not in first.found or where not in by_time.found:
            continue
        opened = [
            p.txn_start_offset
            for p in txn.producers.get(where, ())
            if p.txn_start_offset >= 0 and p.producer_id in txn.producer_ids
        ]
        at = by_time.found[where] if by_time.found[where] >= 0 else txn.ends[where].high_watermark
        at = min([at, *(opened if round_.is_last else ())])
        found[where] = _Start(max(at - SEARCHED_BEFORE, first.found[where]), at)
    return found, list(dict.fromkeys((*problems, *first.problems, *by_time.problems)))


def _search(
    client: KafkaClient, where: NamedPartition, start: _Start, end: int, producer_ids: Collection[int]
) -> tuple[tuple[SeenBatch, ...], bool]:
    """The batches and markers of some producers, and whether everything up to the end was searched."""
    found = []
    reached, is_all = start.before, True
    # Large records before the round leave the limit of the round itself untouched.
    for upper in (start.at, end):
        read_bytes = 0
        for header, batch in read_batches(client, where, reached, upper, SEARCHED_BYTES):
            if header.producer_id in producer_ids:
                found.append(_seen(where, header, batch))
            reached = header.last_offset + 1
            read_bytes += header.size_bytes
            if read_bytes >= SEARCHED_BYTES and reached < upper:
                is_all = False
                break
        reached = max(reached, upper)
    return tuple(found), is_all


def _seen(where: NamedPartition, header: BatchHeader, batch: Buffer) -> SeenBatch:
    if header.is_control:
        return SeenBatch(header, decode_marker(batch))
    return SeenBatch(header, offsets=_offsets_in(batch) if where.topic == OFFSETS_TOPIC else ())


def _offsets_in(batch: Buffer) -> tuple[OffsetRecord, ...]:
    try:
        found = [decode(record.key, record.value, record.offset) for record in iter_records(batch) if record.key]
    except (Corrupt, Malformed):
        return ()  # The step shows the header alone.
    return tuple(record for record in found if isinstance(record, OffsetRecord))
