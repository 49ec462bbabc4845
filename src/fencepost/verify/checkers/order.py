"""The order of the log against the order of sends, and offsets that had two records. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import Index, Where
from fencepost.verify.history import Acked, Event, Poll, Send


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
