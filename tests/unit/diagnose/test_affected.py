"""Which consumer groups wait for a transaction, by their offsets and the ends of partitions."""

from __future__ import annotations

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import GroupOffset, ListedGroup
from fencepost.diagnose.groups import diagnose_group, diagnose_groups
from fencepost.diagnose.lso import affected_groups, is_behind
from fencepost.diagnose.snapshot import GroupSnapshot, GroupsSnapshot, Look
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, ends

LOGS = NamedPartition("logs", 0)
NEW = NamedPartition("new", 0)
ENDS = {ORDERS: ends(40, 90), PAYMENTS: ends(7, 8), LOGS: ends(10, 10)}


@pytest.mark.parametrize(("offset", "waits"), [(0, True), (40, True), (41, False), (90, False), (None, True)])
def test_a_group_at_the_last_stable_offset_or_before_it_waits(offset: int | None, waits: bool) -> None:
    """One beyond it reads uncommitted records. One without an offset began at the last stable offset, or before it."""
    assert is_behind(offset, ENDS[ORDERS]) is waits


def test_no_group_waits_where_no_transaction_is_open() -> None:
    assert not is_behind(3, ENDS[LOGS])


def test_a_group_has_the_lags_of_the_partitions_where_it_waits() -> None:
    groups = {
        "billing": {ORDERS: GroupOffset(30, False), PAYMENTS: GroupOffset(7, False), LOGS: GroupOffset(0, False)},
        "uncommitted": {ORDERS: GroupOffset(90, False)},
    }
    [billing] = affected_groups(groups, ENDS, {ORDERS, PAYMENTS})
    assert (billing.group_id, billing.lag_to_lso, billing.lag_to_high_watermark) == ("billing", 10, 61)
    assert [(p.topic, p.lag_to_lso, p.lag_to_high_watermark) for p in billing.partitions] == [
        ("orders", 10, 60),
        ("payments", 0, 1),
    ]
    assert affected_groups(groups, ENDS, {LOGS}) == ()


def test_a_group_with_an_offset_in_a_transaction_is_affected_wherever_it_reads() -> None:
    groups = {"processors": {LOGS: GroupOffset(4, True), PAYMENTS: GroupOffset(None, True)}}
    [processors] = affected_groups(groups, ENDS, set())
    assert [(p.topic, p.committed_offset, p.lag_to_lso) for p in processors.partitions] == [
        ("logs", 4, 6),
        ("payments", None, None),
    ]


def test_a_member_that_has_committed_nothing_waits_where_a_transaction_holds_the_last_stable_offset() -> None:
    groups = {"new": {ORDERS: GroupOffset(None, False), LOGS: GroupOffset(None, False)}}
    [new] = affected_groups(groups, ENDS, {ORDERS})
    assert [(p.topic, p.committed_offset, p.is_pending, p.lag_to_lso) for p in new.partitions] == [
        ("orders", None, False, None)
    ]


def test_a_group_with_an_offset_in_a_transaction_is_listed_among_those_that_wait() -> None:
    snapshot = GroupsSnapshot(
        now_ms=NOW_MS,
        listed=(ListedGroup("a", 1, "classic", "Empty"), ListedGroup("b", 1, "classic", "Empty")),
        offsets={"a": {LOGS: GroupOffset(0, False)}, "b": {LOGS: GroupOffset(None, True)}},
        ends=ENDS,
    )
    [row] = diagnose_groups(snapshot, only_waiting=True).groups
    assert (row.group_id, row.waiting_count, row.pending_count) == ("b", 0, 1)


def test_groups_that_wait_are_listed_first() -> None:
    listed = tuple(ListedGroup(name, 1, "classic", "Empty") for name in ("a", "b", "c"))
    snapshot = GroupsSnapshot(
        now_ms=NOW_MS,
        listed=listed,
        offsets={"a": {LOGS: GroupOffset(0, False)}, "b": {PAYMENTS: GroupOffset(7, False)}},
        ends=ENDS,
    )
    assert [(row.group_id, row.waiting_count, row.lag_to_lso) for row in diagnose_groups(snapshot).groups] == [
        ("b", 1, 0),
        ("a", 0, 10),
        ("c", 0, 0),
    ]
    waiting = diagnose_groups(snapshot, only_waiting=True)
    assert ([row.group_id for row in waiting.groups], waiting.total) == (["b"], 3)


@pytest.mark.parametrize(
    ("offsets", "to_lso", "to_end", "unknown_count"),
    [
        ({ORDERS: None}, None, None, 1),
        ({ORDERS: None, PAYMENTS: 5}, 2, 3, 1),
        ({ORDERS: None, NEW: None}, None, None, 1),
        ({PAYMENTS: 5}, 2, 3, 0),
        ({}, 0, 0, 0),
        # There is nothing to read.
        ({NEW: None}, 0, 0, 0),
    ],
    ids=[
        "nothing committed",
        "one of two",
        "the other empty",
        "committed",
        "no partition",
        "no record yet",
    ],
)
def test_a_lag_that_is_not_known_is_not_0(
    offsets: dict[NamedPartition, int | None], to_lso: int | None, to_end: int | None, unknown_count: int
) -> None:
    at = {where: GroupOffset(offset, False) for where, offset in offsets.items()}
    seen_ends = ENDS | {NEW: ends(0, 0)}
    listed = ListedGroup("billing", 1, "classic", "Stable")
    groups = GroupsSnapshot(now_ms=NOW_MS, listed=(listed,), offsets={"billing": at}, ends=seen_ends)
    lso = Look(now_ms=NOW_MS, ends=seen_ends)
    one = GroupSnapshot(group=listed, described=None, offsets=at, lso=lso)
    [row] = diagnose_groups(groups).groups
    for found in (row, diagnose_group(one)):
        assert (found.lag_to_lso, found.lag_to_high_watermark, found.unknown_count) == (to_lso, to_end, unknown_count)
    for affected in affected_groups({"billing": at}, seen_ends, {ORDERS, PAYMENTS}):
        assert (affected.lag_to_lso, affected.lag_to_high_watermark) == (to_lso, to_end)


def test_a_group_whose_lag_is_not_known_comes_before_those_with_a_known_lag() -> None:
    groups = {"behind": {ORDERS: GroupOffset(0, False)}, "new": {ORDERS: GroupOffset(None, False)}}
    assert [group.group_id for group in affected_groups(groups, ENDS, {ORDERS})] == ["new", "behind"]
