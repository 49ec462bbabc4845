"""Consumer groups: their members, how far they have read, and which of them wait behind a last stable offset."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import GroupMember, GroupOffset
from fencepost.diagnose.lso import LsoRow, Pin, by_lag, diagnose_lso, home_of, is_behind, lags, lso_row, pins_of, total
from fencepost.diagnose.snapshot import GroupSnapshot, GroupsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    group_id: str
    protocol: str
    state: str
    coordinator: int
    # The partitions that it reads; of these, where it waits behind the last stable offset, and where an offset is in a
    # transaction, so that a new member cannot start.
    partition_count: int
    waiting_count: int
    pending_count: int
    # The sums of the lags that are known (None: not known), and the number of partitions whose lag is not known.
    lag_to_lso: int | None
    lag_to_high_watermark: int | None
    unknown_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    now_ms: int
    # Those that wait first, then by lag.
    groups: tuple[GroupRow, ...]
    # Before the filter.
    total: int
    # Groups in which the Spark sink keeps its notes.
    left_out: int = 0
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    topic: str
    partition: int
    committed_offset: int | None
    is_pending: bool
    last_stable_offset: int | None
    high_watermark: int | None
    lag_to_lso: int | None
    lag_to_high_watermark: int | None
    is_waiting: bool
    # The transaction that holds the last stable offset, if the group waits for one.
    waits_for: LsoRow | None
    # The member that reads the partition.
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    now_ms: int
    group_id: str
    protocol: str
    state: str
    coordinator: int
    assignor: str | None
    epoch: int | None
    # As in GroupRow.
    lag_to_lso: int | None
    lag_to_high_watermark: int | None
    unknown_count: int
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    # The transactions that it waits for on its partitions, the oldest first.
    pins: tuple[Pin, ...]
    # The oldest transaction where offsets of the group are in one; until it ends, a new member may be unable to start.
    offsets_wait_for: Pin | None
    problems: tuple[str, ...]


def diagnose_groups(snapshot: GroupsSnapshot, only_waiting: bool = False) -> GroupList:
    rows = []
    for group in snapshot.listed:
        offsets = snapshot.offsets.get(group.group_id, {})
        behind = [lags(at.offset, snapshot.ends.get(where)) for where, at in offsets.items()]
        row = GroupRow(
            group_id=group.group_id,
            protocol=group.protocol,
            state=group.state,
            coordinator=group.coordinator,
            partition_count=len(offsets),
            waiting_count=sum(is_behind(at.offset, snapshot.ends.get(where)) for where, at in offsets.items()),
            pending_count=sum(at.is_pending for at in offsets.values()),
            lag_to_lso=total(to_lso for to_lso, _ in behind),
            lag_to_high_watermark=total(to_end for _, to_end in behind),
            unknown_count=sum(to_lso is None for to_lso, _ in behind),
        )
        rows.append(row)
    rows.sort(
        key=lambda row: (-row.waiting_count, -row.pending_count, -by_lag(row.lag_to_high_watermark), row.group_id)
    )
    kept = [row for row in rows if row.waiting_count or row.pending_count or not only_waiting]
    return GroupList(
        now_ms=snapshot.now_ms,
        groups=tuple(kept),
        total=len(rows),
        left_out=snapshot.left_out,
        problems=snapshot.problems,
    )


def diagnose_group(snapshot: GroupSnapshot) -> GroupDescription:
    group, described = snapshot.group, snapshot.described
    members = described.members if described is not None else ()
    readers = {where: m.member_id for m in members for where in m.partitions}
    partitions = tuple(
        _group_partition(snapshot, where, readers.get(where)) for where in sorted({*snapshot.offsets, *readers})
    )
    return GroupDescription(
        now_ms=snapshot.lso.now_ms,
        group_id=group.group_id,
        protocol=group.protocol,
        state=described.state if described is not None else group.state,
        coordinator=group.coordinator,
        assignor=described.assignor or None if described is not None else None,
        epoch=described.epoch if described is not None else None,
        lag_to_lso=total(p.lag_to_lso for p in partitions),
        lag_to_high_watermark=total(p.lag_to_high_watermark for p in partitions),
        unknown_count=sum(p.lag_to_lso is None for p in partitions),
        members=tuple(replace(m, host=m.host.removeprefix("/")) for m in members),
        partitions=partitions,
        pins=pins_of(p.waits_for for p in partitions if p.waits_for is not None),
        offsets_wait_for=_offsets_wait_for(snapshot) if any(p.is_pending for p in partitions) else None,
        problems=(*snapshot.lso.unanswered_coordinators, *snapshot.lso.problems, *snapshot.problems),
    )


def _offsets_wait_for(snapshot: GroupSnapshot) -> Pin | None:
    home = home_of(snapshot.group.group_id, snapshot.lso.ends)
    return next((pin for pin in diagnose_lso(snapshot.lso).pins if home in pin.partitions), None)


def _group_partition(snapshot: GroupSnapshot, where: NamedPartition, member_id: str | None) -> GroupPartition:
    at = snapshot.offsets.get(where, GroupOffset(None, False))
    ends = snapshot.lso.ends.get(where)
    to_lso, to_end = lags(at.offset, ends)
    is_waiting = is_behind(at.offset, ends)
    row = lso_row(snapshot.lso, where, ends) if is_waiting and ends is not None else None
    return GroupPartition(
        topic=where.topic,
        partition=where.partition,
        committed_offset=at.offset,
        is_pending=at.is_pending,
        last_stable_offset=ends.last_stable_offset if ends is not None else None,
        high_watermark=ends.high_watermark if ends is not None else None,
        lag_to_lso=to_lso,
        lag_to_high_watermark=to_end,
        is_waiting=is_waiting,
        waits_for=row,
        member_id=member_id,
    )
