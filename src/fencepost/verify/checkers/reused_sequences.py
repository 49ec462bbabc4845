"""Acknowledged records that a broker took for duplicates of earlier ones of the same producer. Pure.

librdkafka gives up a record whose Produce was not answered when its transaction is aborted, and gives its sequence
number to the next record. With transaction version 1 both have the same producer epoch. If the first record is in the
log, Kafka takes the second one for a repeated request: it acknowledges it with the offset of the first, and does not
write it.

The log proves it: the offset of the acknowledgement has a record of an earlier transaction, of which the client never
had an answer, and the acknowledged record is nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.verify.checkers.anomaly import Anomaly
from fencepost.verify.checkers.index import Index


def check_reused_sequences(index: Index) -> Iterator[Anomaly]:
    for value, earlier in index.taken_for_duplicates.items():
        send, ack = index.sends[value], index.acks[value]
        what = (
            f"{value} was acknowledged at {ack.topic}-{ack.partition} offset {ack.offset}, which has {earlier} of an "
            f"earlier transaction: the client gave both the same sequence number, so {index.txn_of(send)} has no "
            f"{value}"
        )
        logs = index.logs[ack.topic, ack.partition]
        log = next(log for log in logs if any(entry[0] == ack.offset for entry in log.entries))
        proof = (*index.proof_of(index.sends[earlier]), *index.proof_of(send), ack, log)
        yield Anomaly("reused-sequence", what, proof)
