"""The order of the log against the order of sends, offsets that had two records, and the inputs of outputs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import Index, Where
from fencepost.verify.history import Acked, Event, Poll, Send, TxnOutcome


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
