"""Which consumer groups wait for a transaction.

A group commits the offset of the next record that it will read. On a partition whose last stable offset (LSO) is held
by a transaction, a group at the LSO or before it waits there, or will as soon as it has read up to the LSO. A group
beyond the LSO reads uncommitted records, and waits for no transaction. A member that reads a partition without a
committed offset waits, too: whichever end it began at, it began at the LSO or before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import GroupOffset, GroupOffsets
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, Ends
from fencepost.machines.txn.records import partition_for


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedPartition:
    topic: str
    partition: int
    # None: a member reads there and has committed nothing, or a transaction has the first offset, and has not ended.
    committed_offset: int | None
    # A transaction that has not ended may change the offset: a new member of the group cannot start before it ends.
    is_pending: bool
    lag_to_lso: int | None
    lag_to_high_watermark: int | None

    @property
    def where(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedGroup:
    """A consumer group that waits for a transaction, with the partitions where it does."""

    group_id: str
    # The sums of the lags that are known; None: not known.
    lag_to_lso: int | None
    lag_to_high_watermark: int | None
    # Of its partitions, those whose lag is not known: the sums lack them.
    unknown_count: int
    partitions: tuple[AffectedPartition, ...]


def lags(offset: int | None, ends: Ends | None) -> tuple[int | None, int | None]:
    """How many offsets a reader at `offset` is behind the last stable offset, and behind the high watermark.

    None: not known. A reader without a committed offset may have begun anywhere, unless there has been no record yet.
    """
    if ends is not None and ends.high_watermark == 0:
        return 0, 0
    if offset is None or ends is None:
        return None, None
    return max(ends.last_stable_offset - offset, 0), max(ends.high_watermark - offset, 0)


def total(lags: Iterable[int | None]) -> int | None:
    """The sum of the lags that are known; None if it would be 0 only because the others are unknown."""
    all_ = list(lags)
    known = sum(lag for lag in all_ if lag is not None)
    return known if known or None not in all_ else None


def by_lag(lag: int | None) -> float:
    """For an order by lag: one that is not known may be any, so it is the largest."""
    return float("inf") if lag is None else lag


def is_behind(offset: int | None, ends: Ends | None) -> bool:
    """Whether a transaction holds the last stable offset of the partition, and the reader has not passed it."""
    return ends is not None and ends.gap > 0 and (offset is None or offset <= ends.last_stable_offset)


def home_of(group_id: str, ends: Mapping[NamedPartition, Ends]) -> NamedPartition | None:
    """The partition of `__consumer_offsets` that keeps the offsets of a group; None if `ends` lacks the topic."""
    count = max((where.partition + 1 for where in ends if where.topic == OFFSETS_TOPIC), default=0)
    return NamedPartition(OFFSETS_TOPIC, partition_for(group_id, count)) if count else None


def affected_groups(
    groups: Mapping[str, GroupOffsets], ends: Mapping[NamedPartition, Ends], pinned: Collection[NamedPartition]
) -> tuple[AffectedGroup, ...]:
    """The groups that wait on one of these partitions, or have an offset in a transaction; the largest lag first."""
    found = []
    for group_id, offsets in groups.items():
        partitions = [
            _affected(where, at, ends.get(where))
            for where, at in sorted(offsets.items())
            if at.is_pending or (where in pinned and is_behind(at.offset, ends.get(where)))
        ]
        if partitions:
            affected = AffectedGroup(
                group_id=group_id,
                lag_to_lso=total(p.lag_to_lso for p in partitions),
                lag_to_high_watermark=total(p.lag_to_high_watermark for p in partitions),
                unknown_count=sum(p.lag_to_lso is None for p in partitions),
                partitions=tuple(partitions),
            )
            found.append(affected)
    return tuple(sorted(found, key=lambda group: (-by_lag(group.lag_to_high_watermark), group.group_id)))


def _affected(where: NamedPartition, at: GroupOffset, ends: Ends | None) -> AffectedPartition:
    to_lso, to_end = lags(at.offset, ends)
    return AffectedPartition(
        topic=where.topic,
        partition=where.partition,
        committed_offset=at.offset,
        is_pending=at.is_pending,
        lag_to_lso=to_lso,
        lag_to_high_watermark=to_end,
    )
