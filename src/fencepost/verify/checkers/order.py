"""The order of the log, of sends, of polls and of outputs. Pure.

The records of a partition are those that any read of the same isolation returned. A reader gets no offset twice, and no
record is left out. One that no reader got is lost, and not skipped. After a power loss, read_uncommitted readers need
not get more than the committed records. A topic that does not keep every record may have had fewer of them at a later
read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from fencepost.verify.checkers.index import READ_UNCOMMITTED, Index, Where
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Acked, Assign, Event, Poll, Send, TxnOutcome


def check_send_order(index: Index) -> Iterator[Anomaly]:
    """Records that are behind others in the log, although they were sent before them.

    A record comes before all records that any writer sent to its partition after its acknowledgement. The records of
    one writer's transactions come in the order of its sends, acknowledged or not: the broker checks their sequence, and
    fences the writer's earlier producers. Two records at one offset are another checker's.
    """
    acked: dict[Where, Acked] = {}  # The acknowledgement with the highest offset so far.
    sent: dict[tuple[str, Where], tuple[int, Send]] = {}  # The writer's last record in the partition so far.
    for event in index.events:
        if isinstance(event, Acked):
            where = (event.topic, event.partition)
            if index.is_binding(event) and (where not in acked or acked[where].offset < event.offset):
                acked[where] = event
        elif isinstance(event, Send) and (place := index.places.get(event.value)) is not None:
            where, offset = place[:2], place[2]
            earlier = acked.get(where)
            if earlier is not None and earlier.offset > offset:
                yield _out_of_order(index, where, event, offset, earlier.value, earlier.offset, "acknowledged before")
                continue
            if event.txn is None:
                continue
            last_offset, last = sent.get((event.by, where), (-1, event))
            if last_offset > offset:
                yield _out_of_order(index, where, event, offset, last.value, last_offset, "sent before")
            else:
                sent[event.by, where] = (offset, event)


def _out_of_order(
    index: Index, where: Where, send: Send, offset: int, earlier: str, earlier_offset: int, how: str
) -> Anomaly:
    topic, partition = where
    what = f"{topic}-{partition}: {send.value} is at offset {offset}, {earlier}, {how} it, at {earlier_offset}"
    proof: list[Event | None] = [index.sends.get(earlier), index.acks.get(earlier), send, index.acks.get(send.value)]
    proof += [index.seen[value][0] for value in (earlier, send.value) if value in index.seen]
    return Anomaly("nonmonotonic-send", what, tuple(event for event in proof if event is not None))


def check_offsets_agree(index: Index) -> Iterator[Anomaly]:
    """Offsets for which acknowledgements, reads and the log have different records."""
    records: dict[Where, dict[int, tuple[str, Event]]] = {}
    passing = _passing_polls(index)
    for event in index.events:
        if isinstance(event, Acked):
            # Below 0, the client does not know it.
            if event.offset < 0 or not index.is_binding(event) or event.value in index.taken_for_duplicates:
                continue
            found = [(event.offset, event.value)]
        elif isinstance(event, Poll) and id(event) not in passing:
            found = event.records  # type: ignore[assignment]
        else:
            continue
        known = records.setdefault((event.topic, event.partition), {})
        for offset, value in found:
            first = known.setdefault(offset, (value, event))
            if first[0] != value:
                yield _disagree((event.topic, event.partition), offset, first, (value, event))
    for where, logs in index.logs.items():
        known = records.get(where, {})
        for log in logs:
            for offset, kind, value, _, _ in log.entries:
                if kind == "data" and offset in known and known[offset][0] != value:
                    yield _disagree(where, offset, known[offset], (value, log))


def _passing_polls(index: Index) -> set[int]:
    """The polls, by their identities, whose records a power loss may have taken: those that read uncommitted ones."""
    if not index.power_losses:
        return set()
    committed = {id(poll) for poll in index.committed_polls}
    polls = {id(event) for events in index.readings.values() for event in events if isinstance(event, Poll)}
    return polls - committed


def _disagree(where: Where, offset: int, first: tuple[str, Event], second: tuple[str, Event]) -> Anomaly:
    what = f"{where[0]}-{where[1]} offset {offset} had {first[0]} and then {second[0]}"
    return Anomaly("inconsistent-offsets", what, (first[1], second[1]))


def check_sources(index: Index) -> Iterator[Anomaly]:
    """Outputs of an input that no reader gets: it was aborted, or was never there."""
    there = {where: set(values.values()) for where, values in index.at_rest.items() if index.is_read(where)}
    for value in (value for values in index.at_rest.values() for value in values):
        send = index.sends.get(value)
        if send is None or send.source is None or not index.keeps_all(send.source[0]):
            continue
        topic, partition, offset = send.source
        if (topic, partition) in there and offset not in there[topic, partition]:
            what = f"{value} was made from {topic}-{partition} offset {offset}, where no reader gets a record"
            yield Anomaly("invented", what, _proof(index, send))


def check_output_order(index: Index) -> Iterator[Anomaly]:
    """Outputs of a group that makes one of every input, in another order than their inputs.

    Within a transaction any order is right. Each transaction of the group continues where the one before it ended.
    """
    for topic in index.header.copies.values():
        for partition in range(index.header.topics.get(topic, 0)):
            where = (topic, partition)
            last: dict[Where, Send] = {}  # By partition of the inputs: the last output.
            there = index.at_rest.get(where, {})
            for value in sorted(there, key=there.__getitem__):
                send = index.sends.get(value)
                # A record of an aborted transaction must not be there at all, which is another checker's.
                if send is None or send.source is None or index.outcome_of(value) is TxnOutcome.ABORTED:
                    continue
                source = (send.source[0], send.source[1])
                before = last.get(source)
                if before is not None and _is_earlier(send, before):
                    what = f"{topic}-{partition}: {value} is behind {before.value}, and its input is before that one's"
                    yield Anomaly("nonmonotonic-send", what, (*_proof(index, before), *_proof(index, send)))
                else:
                    last[source] = send


def _is_earlier(send: Send, before: Send) -> bool:
    assert send.source is not None
    assert before.source is not None
    return bool(send.source[2] < before.source[2]) and (send.by, send.txn) != (before.by, before.txn)


def _proof(index: Index, send: Send) -> tuple[Event, ...]:
    read = (index.seen[send.value][0],) if send.value in index.seen else ()
    return (*index.proof_of(send), *read)


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
