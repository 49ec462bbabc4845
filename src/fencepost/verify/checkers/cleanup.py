"""Topics that do not keep every record: which of them must still be there at rest. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import Index, Where
from fencepost.verify.history import Event, Send, TxnOutcome

COMPACT, DELETE = "compact", "delete"


def check_compacted(index: Index) -> Iterator[Anomaly]:
    """Compacted topics without the newest committed record of a key, or a newer one."""
    left: dict[tuple[Where, str | None], list[Send]] = defaultdict(list)
    for where, send in _visible(index, COMPACT):
        left[where, send.key].append(send)
    for where, send in _gone(index, COMPACT):
        same_key = left.get((where, send.key), [])
        if send.key is not None and not any(_may_be_behind(index, other, send) for other in same_key):
            topic, partition = where
            what = f"{send.value} is not in {topic}-{partition}, and no newer record of key {send.key} is"
            yield Anomaly("lost-write", what, _proof(index, send))


def check_retained(index: Index) -> Iterator[Anomaly]:
    """Topics with a retention that have lost others than their oldest records."""
    oldest: dict[Where, int] = {
        where: min(values.values())
        for where, values in index.at_rest.items()
        if values and index.header.cleanup.get(where[0]) == DELETE
    }
    for where, send in _gone(index, DELETE):
        place = index.places.get(send.value)
        if where in oldest and place is not None and place[2] > oldest[where]:
            topic, partition = where
            what = f"{send.value} is not in {topic}-{partition}, which has older records"
            yield Anomaly("lost-write", what, _proof(index, send))


def _visible(index: Index, policy: str) -> Iterator[tuple[Where, Send]]:
    for where, values in index.at_rest.items():
        if index.header.cleanup.get(where[0]) == policy:
            yield from ((where, index.sends[value]) for value in values if value in index.sends)


def _gone(index: Index, policy: str) -> Iterator[tuple[Where, Send]]:
    """The committed records that are not there, with the partition that they were in, if it was read to its end."""
    topics = {topic for topic, found in index.header.cleanup.items() if found == policy}
    for send in index.sends.values() if topics else ():
        if send.topic not in topics or send.value in index.visible_at_rest:
            continue
        place = index.places.get(send.value)
        where = place[:2] if place is not None else (send.topic, send.partition)
        if index.outcome_of(send.value) is TxnOutcome.COMMITTED and index.is_read(where):
            yield where, send


def _may_be_behind(index: Index, other: Send, send: Send) -> bool:
    """Whether a record may be behind another in the log. Without their offsets, the order of sends decides."""
    there, gone = index.places.get(other.value), index.places.get(send.value)
    return there[2] > gone[2] if there is not None and gone is not None else other.at > send.at


def _proof(index: Index, send: Send) -> tuple[Event, ...]:
    ack = index.acks.get(send.value)
    return (*index.proof_of(send), *((ack,) if ack is not None else ()))
