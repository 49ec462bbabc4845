"""The last stable offset (LSO) of each partition, the transactions that read_committed readers wait for, and who waits.

A group commits the offset of the next record that it will read. On a partition whose LSO is held by a transaction, a
group at the LSO or before it waits there, or will as soon as it has read up to the LSO. A group beyond the LSO reads
uncommitted records, and waits for no transaction. A member that reads a partition without a committed offset waits,
too: whichever end it began at, it began at the LSO or before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from fencepost.client.admin.answers import NamedPartition, Producer, Rpc
from fencepost.client.admin.groups import GroupOffset, GroupOffsets
from fencepost.commands import Command, command
from fencepost.diagnose.hanging import abort_command
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, Ends, Look, age_by_record, first_open, is_coordinated
from fencepost.machines.txn.records import partition_for


@dataclass(frozen=True, slots=True, kw_only=True)
class LsoRow:
    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    # The offsets between the two: records that readers wait for, and markers.
    waiting: int
    # The transaction that the readers wait for; all None if there is none.
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    state: str | None = None
    age_ms: int | None = None
    timeout_ms: int | None = None
    # The client of the transaction, if the brokers remember its requests.
    client_id: str | None = None
    host: str | None = None
    # No coordinator will end it: it hangs.
    is_orphan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One transaction that readers wait for, with all its partitions."""

    producer_id: int
    transactional_id: str | None
    partitions: tuple[NamedPartition, ...]
    # The offsets that readers wait for; those in `__consumer_offsets`, which no consumer reads, do not count.
    waiting: int
    age_ms: int | None
    timeout_ms: int | None
    is_orphan: bool
    # The next commands: one that explains the transaction or, if it hangs, one for each partition that ends it there.
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LsoReport:
    now_ms: int
    partitions: tuple[LsoRow, ...]
    # By transaction, the oldest first.
    pins: tuple[Pin, ...]
    partition_count: int
    waiting_count: int
    max_age_ms: int | None
    # The `pins` that are older than `max_age_ms`.
    late: tuple[Pin, ...]
    # The consumer groups that wait.
    groups: tuple[AffectedGroup, ...]
    # What is not known about groups.
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


def diagnose_lso(snapshot: Look, max_age_ms: int | None = None, shows_all: bool = False) -> LsoReport:
    """The partitions where readers wait, the longest wait first; with `shows_all`, all partitions."""
    rows = [lso_row(snapshot, where, ends) for where, ends in snapshot.ends.items()]
    waiting = [row for row in rows if row.waiting > 0]
    shown = rows if shows_all else waiting
    pins = pins_of(waiting)
    return LsoReport(
        now_ms=snapshot.now_ms,
        partitions=tuple(sorted(shown, key=lambda row: (-(row.age_ms or 0), row.topic, row.partition))),
        pins=pins,
        partition_count=len(rows),
        waiting_count=len(waiting),
        max_age_ms=max_age_ms,
        late=tuple(pin for pin in pins if max_age_ms is not None and (pin.age_ms or 0) > max_age_ms),
        groups=affected_groups(snapshot.groups, snapshot.ends, {where for pin in pins for where in pin.partitions}),
        warnings=snapshot.warnings,
        problems=(*snapshot.unanswered_coordinators, *snapshot.problems, *_unknown_ages(waiting)),
    )


def lso_row(snapshot: Look, where: NamedPartition, ends: Ends) -> LsoRow:
    pin = first_open(snapshot.producers.get(where, ())) if ends.gap > 0 else None
    row = LsoRow(
        topic=where.topic,
        partition=where.partition,
        last_stable_offset=ends.last_stable_offset,
        high_watermark=ends.high_watermark,
        waiting=ends.gap,
    )
    if pin is None:
        return row
    txn = snapshot.txns.get(pin.producer_id)
    is_known = is_coordinated(txn, where)
    last_rpc = _last_rpc(snapshot.rpcs.get(txn.transactional_id, ()), pin) if txn is not None else None
    return replace(
        row,
        producer_id=pin.producer_id,
        producer_epoch=pin.producer_epoch,
        transactional_id=txn.transactional_id if txn is not None else None,
        state=txn.state if txn is not None else None,
        age_ms=_age_ms(snapshot, where, pin, txn.start_ms if txn is not None and is_known else -1),
        timeout_ms=txn.timeout_ms if txn is not None and is_known else None,
        client_id=last_rpc.client_id if last_rpc is not None else None,
        host=last_rpc.host if last_rpc is not None else None,
        is_orphan=snapshot.hangs(where, pin) is True,
    )


def _last_rpc(rpcs: tuple[Rpc, ...], pin: Producer) -> Rpc | None:
    """The last request of the pinning producer; a newer producer may have sent later ones with the same id."""
    mine = [r for r in rpcs if (r.producer_id, r.producer_epoch) == (pin.producer_id, pin.producer_epoch)]
    return mine[-1] if mine else None


def _age_ms(snapshot: Look, where: NamedPartition, pin: Producer, start_ms: int) -> int | None:
    """The time since the transaction began or, if no coordinator knows it, since its first record was written."""
    if start_ms >= 0:
        return max(snapshot.now_ms - start_ms, 0)
    stamps_ms = (snapshot.first_record_ms.get(where, -1), pin.last_timestamp_ms)
    ages = (age_by_record(stamp_ms, snapshot.now_ms) for stamp_ms in stamps_ms)
    return next((age_ms for age_ms in ages if age_ms is not None), None)


def _unknown_ages(waiting: list[LsoRow]) -> list[str]:
    """An unknown age never exceeds a limit, so it is reported as a problem."""
    return [
        f"it is not known how long readers of {NamedPartition(row.topic, row.partition)} wait for producer "
        f"{row.producer_id}: no coordinator knows when it began, and its timestamps are not the time of writing"
        for row in waiting
        if row.producer_id is not None and row.age_ms is None
    ]


def pins_of(rows: Iterable[LsoRow]) -> tuple[Pin, ...]:
    """The transactions that readers of some partitions wait for, the oldest first."""
    by_txn: dict[tuple[int, bool], list[LsoRow]] = {}
    for row in rows:
        if row.producer_id is not None:
            by_txn.setdefault((row.producer_id, row.is_orphan), []).append(row)
    pins = [
        Pin(
            producer_id=producer_id,
            transactional_id=found[0].transactional_id,
            partitions=tuple(sorted(NamedPartition(row.topic, row.partition) for row in found)),
            waiting=sum(row.waiting for row in found if row.topic != OFFSETS_TOPIC),
            age_ms=max((row.age_ms for row in found if row.age_ms is not None), default=None),
            timeout_ms=found[0].timeout_ms,
            is_orphan=is_orphan,
            commands=_commands(producer_id, is_orphan, found),
        )
        for (producer_id, is_orphan), found in by_txn.items()
    ]
    return tuple(sorted(pins, key=lambda pin: (-(pin.age_ms or 0), pin.producer_id)))


def _commands(producer_id: int, is_orphan: bool, rows: list[LsoRow]) -> tuple[Command, ...]:
    if is_orphan:
        return tuple(abort_command(NamedPartition(row.topic, row.partition), producer_id) for row in rows)
    transactional_id = rows[0].transactional_id
    if transactional_id is None:
        return ()  # Not all coordinators answered: it may hang, or not.
    return (command("txn", "explain", about=transactional_id),)


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
