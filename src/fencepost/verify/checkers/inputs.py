"""What outputs say of the inputs that they were made from: that they exist, and in which order they were read. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import Index, Where
from fencepost.verify.history import Event, Send, TxnOutcome


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
