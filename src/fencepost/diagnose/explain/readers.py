"""Which readers wait for a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, TxnSnapshot, first_open
from fencepost.diagnose.words import counted, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A partition whose last stable offset this transaction holds."""

    topic: str
    partition: int
    last_stable_offset: int
    waiting: int

    @property
    def where(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)


def what_it_blocks(snapshot: TxnSnapshot, txn: DescribedTxn) -> tuple[Blocked, ...]:
    """The partitions on which this transaction is the oldest open one, and readers wait behind it."""
    found = []
    for where in txn.partitions:
        ends = snapshot.ends.get(where)
        pin = first_open(snapshot.producers.get(where, ()))
        if ends is not None and ends.gap > 0 and pin is not None and pin.producer_id == txn.producer_id:
            blocked = Blocked(
                topic=where.topic,
                partition=where.partition,
                last_stable_offset=ends.last_stable_offset,
                waiting=ends.gap,
            )
            found.append(blocked)
    return tuple(found)


def what_waits(txn: DescribedTxn, blocks: Sequence[Blocked]) -> str:
    data = [b for b in blocks if b.topic != OFFSETS_TOPIC]
    sentences = ["No reader waits for it at the moment."]
    if data:
        waiting = sum(b.waiting for b in data)
        pinned = listed(b.where for b in data)
        offsets = f"{counted(waiting, 'offset')} behind it cannot be read with read_committed"
        sentences = [f"It pins the last stable offset of {pinned}: {offsets}."]
    if any(where.topic == OFFSETS_TOPIC for where in txn.partitions):
        sentences.append(
            "It also commits offsets of a consumer group: until it ends, OffsetFetch is answered with "
            "UNSTABLE_OFFSET_COMMIT."
        )
    return " ".join(sentences)
