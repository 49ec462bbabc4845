"""Which readers wait for a transaction: partitions, and the consumer groups that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.counting import counted
from fencepost.diagnose.affected import AffectedGroup, AffectedPartition
from fencepost.diagnose.explain.findings import GROUPS, Finding
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, OpenTxn, TxnSnapshot, first_open
from fencepost.diagnose.words import listed
from fencepost.printable import Lines

HOLDS_OFFSETS = (
    "It commits offsets of a consumer group: until it ends, OffsetFetch is answered with UNSTABLE_OFFSET_COMMIT, and "
    "no new member of the group can start."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A partition whose last stable offset this transactional id holds."""

    topic: str
    partition: int
    last_stable_offset: int
    waiting: int
    # By a transaction that the coordinator does not know.
    is_hanging: bool

    @property
    def where(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)


def what_it_blocks(snapshot: TxnSnapshot) -> tuple[Blocked, ...]:
    """The partitions on which a transaction of this id is the oldest open one, and readers wait behind it."""
    found = []
    mine, unknown = snapshot.producer_ids, snapshot.leftovers
    for where, ends in sorted(snapshot.ends.items()):
        pin = first_open(snapshot.producers.get(where, ()))
        if ends.gap > 0 and pin is not None and pin.producer_id in mine:
            open_ = OpenTxn(where, pin.producer_id, pin.producer_epoch, pin.txn_start_offset)
            blocked = Blocked(
                topic=where.topic,
                partition=where.partition,
                last_stable_offset=ends.last_stable_offset,
                waiting=ends.gap,
                is_hanging=open_ in unknown,
            )
            found.append(blocked)
    return tuple(found)


def what_waits(txn: DescribedTxn, blocks: Sequence[Blocked]) -> str:
    """Who waits for the transaction that the coordinator knows."""
    data = [b for b in blocks if b.topic != OFFSETS_TOPIC and not b.is_hanging]
    sentences = ["No reader waits for it at the moment."]
    if data:
        pinned = listed(b.where for b in data)
        sentences = [f"It pins the last stable offset of {pinned}: {offsets_behind(data)}."]
    if any(where.topic == OFFSETS_TOPIC for where in txn.partitions):
        sentences.append(HOLDS_OFFSETS)
    return " ".join(sentences)


def offsets_behind(blocks: Sequence[Blocked]) -> str:
    waiting = sum(b.waiting for b in blocks if b.topic != OFFSETS_TOPIC)
    return f"{counted(waiting, 'offset')} behind it cannot be read with read_committed"


def which_groups(groups: Sequence[AffectedGroup]) -> list[Finding]:
    if not groups:
        return []
    return [Finding(GROUPS, Lines.of(map(_group, groups)))]


def _group(group: AffectedGroup) -> str:
    return f"`{group.group_id}`: {listed(_lag(p) for p in group.partitions)}"


def _lag(p: AffectedPartition) -> str:
    pending = "an offset in a transaction; " if p.is_pending else ""
    if p.committed_offset is None:
        return f"{p.where} ({pending}no committed offset)"
    lag = f"lag {p.lag_to_lso} to the last stable offset, {p.lag_to_high_watermark} to the high watermark"
    return f"{p.where} ({pending}{lag})"
