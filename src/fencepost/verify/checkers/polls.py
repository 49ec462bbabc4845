"""What a reader gets, one poll after the other: no offset twice, and no record left out. Pure.

The records of a partition are those that any read of the same isolation returned. A record that no reader got is lost,
and not skipped. After a power loss, read_uncommitted readers need not get more than the committed records. A topic that
does not keep every record may have had fewer of them at a later read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import READ_UNCOMMITTED, Index, Where
from fencepost.verify.history import Assign, Poll, TxnOutcome

# The offsets of a partition's records in order, and the record at each.
Known = tuple[list[int], dict[int, str]]


def check_polls(index: Index) -> Iterator[Anomaly]:
    """Non-monotonic polls, skipped records, and intermediate reads (G1b).

    A skipped record is an intermediate read if the reader got other records of its transaction in the partition.
    """
    committed, all_records = _known_records(index)
    for (by, topic, partition), events in index.readings.items():
        where = (topic, partition)
        position: int | None = None  # The lowest offset that may come next; None if it is not known.
        known = committed.get(where, ([], {}))
        got: dict[tuple[str, int | None], str] = {}  # Transactions of which the reader got a record, and which.
        last: Assign | Poll | None = None
        for event in events:
            if isinstance(event, Assign):
                position = event.offset if event.offset >= 0 else None
                known = (all_records if event.isolation == READ_UNCOMMITTED else committed).get(where, ([], {}))
                got, last = {}, event
                continue
            offsets, values = known
            for offset, value in event.records:
                if position is not None and offset < position:
                    what = f"{by} got {topic}-{partition} offset {offset} ({value}), its position was {position}"
                    yield Anomaly("nonmonotonic-poll", what, (*_before(last), event))
                    continue
                if position is not None:
                    for at in _between(offsets, position, offset):
                        yield from _skipped(index, by, where, (at, values[at]), offset, got, (*_before(last), event))
                position = offset + 1
                send = index.sends.get(value)
                if send is not None and send.txn is not None:
                    got[send.by, send.txn] = value
            if position is not None and position < event.position:
                for at in _between(offsets, position, event.position):
                    found = (at, values[at])
                    yield from _skipped(index, by, where, found, event.position, got, (*_before(last), event))
                position = event.position
            last = event


def _between(offsets: list[int], first: int, end: int) -> list[int]:
    return offsets[bisect_left(offsets, first) : bisect_left(offsets, end)] if first < end else []


def _before(last: Assign | Poll | None) -> tuple[Assign | Poll, ...]:
    return (last,) if last is not None else ()


def _known_records(index: Index) -> tuple[dict[Where, Known], dict[Where, Known]]:
    """The records that read_committed readers should get, and those that are there for read_uncommitted ones."""
    committed: dict[Where, dict[int, str]] = defaultdict(dict)
    for poll in index.committed_polls:
        if not index.keeps_all(poll.topic):
            continue
        found = committed[poll.topic, poll.partition]
        for offset, value in poll.records:
            if offset not in found and _may_be_read(index, value):
                found[offset] = value
    in_order = _sorted(committed)
    if index.power_losses:
        return in_order, in_order
    everything: dict[Where, dict[int, str]] = defaultdict(dict)
    for (_, topic, partition), events in index.readings.items():
        for event in events:
            if isinstance(event, Poll) and index.keeps_all(topic):
                everything[topic, partition].update(event.records)  # type: ignore[arg-type]
    return in_order, _sorted(everything)


def _may_be_read(index: Index, value: str) -> bool:
    """Whether a read_committed reader may get a record: others are accused of reading it, not of skipping it."""
    return value not in index.sends or index.outcome_of(value) in (TxnOutcome.COMMITTED, TxnOutcome.UNKNOWN)


def _sorted(records: dict[Where, dict[int, str]]) -> dict[Where, Known]:
    return {where: (sorted(found), found) for where, found in records.items()}


def _skipped(
    index: Index,
    by: str,
    where: Where,
    skipped: tuple[int, str],
    offset: int,
    got: dict[tuple[str, int | None], str],
    proof: tuple[Assign | Poll, ...],
) -> Iterator[Anomaly]:
    at, value = skipped
    what = f"{by} went on to {where[0]}-{where[1]} offset {offset} without offset {at} ({value})"
    read = (index.seen[value][0],) if value in index.seen else ()
    send = index.sends.get(value)
    if send is None:
        yield Anomaly("poll-skip", what, (*read, *proof))
    elif send.at > proof[-1].at:
        return  # A power loss took what was there when the reader passed.
    elif send.txn is not None and (other := got.get((send.by, send.txn))) is not None:
        yield Anomaly("G1b", f"{what}, though it got {other} of the same transaction", (send, *read, *proof))
    else:
        yield Anomaly("poll-skip", what, (send, *read, *proof))
