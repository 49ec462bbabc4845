"""Which transaction pins the last stable offset, by the answers of leaders and coordinators; which groups wait."""

from __future__ import annotations

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import GroupOffset, ListedGroup
from fencepost.diagnose.groups import diagnose_group, diagnose_groups
from fencepost.diagnose.lso import affected_groups, diagnose_lso, is_behind
from fencepost.diagnose.snapshot import GroupSnapshot, GroupsSnapshot, Look
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, described, ends, producer, rpc

STUCK = described()
QUICK = described(
    transactional_id="audit", producer_id=8, start_ms=NOW_MS - 20, partitions=(NamedPartition("audit", 0),)
)


def snapshot(**changes: object) -> Look:
    fields = {
        "now_ms": NOW_MS,
        "ends": {
            ORDERS: ends(40, 90),
            PAYMENTS: ends(7, 8),
            NamedPartition("audit", 0): ends(3, 4),
            NamedPartition("logs", 0): ends(10, 10),
        },
        "producers": {
            # Two transactions are open on it: readers wait for the one that began first.
            ORDERS: (producer(60, producer_id=8), producer(40), producer(-1, producer_id=9)),
            PAYMENTS: (producer(7),),
            NamedPartition("audit", 0): (producer(3, producer_id=8),),
        },
        "txns": {7: STUCK, 8: QUICK},
    }
    return Look(**fields | changes)  # type: ignore[arg-type]


def test_the_first_open_transaction_is_the_one_that_readers_wait_for() -> None:
    report = diagnose_lso(snapshot())
    assert [(row.topic, row.transactional_id, row.waiting) for row in report.partitions] == [
        ("orders", "orders-sink", 50),
        ("payments", "orders-sink", 1),
        ("audit", "audit", 1),
    ]
    assert (report.partition_count, report.waiting_count) == (4, 3)


def test_a_transaction_is_named_once_with_all_its_partitions() -> None:
    stuck, quick = diagnose_lso(snapshot()).pins
    assert (stuck.transactional_id, stuck.partitions, stuck.waiting) == ("orders-sink", (ORDERS, PAYMENTS), 51)
    assert (stuck.age_ms, stuck.timeout_ms, quick.age_ms) == (12_000, 60_000, 20)


def test_only_a_transaction_older_than_the_limit_is_late() -> None:
    assert [pin.transactional_id for pin in diagnose_lso(snapshot(), max_age_ms=10_000).late] == ["orders-sink"]
    assert diagnose_lso(snapshot(), max_age_ms=12_000).late == ()
    assert diagnose_lso(snapshot()).late == ()


def test_partitions_where_no_reader_waits_are_shown_on_demand() -> None:
    shown = diagnose_lso(snapshot(), shows_all=True).partitions
    assert ("logs", None) in [(row.topic, row.transactional_id) for row in shown]


def test_a_transaction_that_no_coordinator_knows_has_the_age_of_its_first_record() -> None:
    for txns in ({}, {7: described("CompleteCommit", partitions=())}, {7: described(partitions=(PAYMENTS,))}):
        report = diagnose_lso(
            snapshot(
                ends={ORDERS: ends(40, 90)},
                producers={ORDERS: (producer(40),)},
                txns=txns,
                first_record_ms={ORDERS: NOW_MS - 3_600_000},
            )
        )
        [row] = report.partitions
        assert row.is_orphan
        assert (row.age_ms, row.timeout_ms) == (3_600_000, None)


def test_an_age_without_a_source_stays_unknown() -> None:
    unknown = producer(40, last_timestamp_ms=-1)
    report = diagnose_lso(snapshot(ends={ORDERS: ends(40, 90)}, producers={ORDERS: (unknown,)}, txns={}))
    assert report.partitions[0].age_ms is None
    assert diagnose_lso(snapshot(), max_age_ms=0).late, "and does not hide the others"


def test_an_unknown_age_is_a_problem_because_it_never_exceeds_a_limit() -> None:
    for stamped_ms in (0, NOW_MS * 1000):
        pin = producer(40, last_timestamp_ms=stamped_ms)
        only = {"ends": {ORDERS: ends(40, 90)}, "producers": {ORDERS: (pin,)}, "first_record_ms": {ORDERS: stamped_ms}}
        report = diagnose_lso(snapshot(**only, txns={}), max_age_ms=60_000)
        assert (report.partitions[0].age_ms, report.late) == (None, ())
        [problem] = report.problems
        assert problem.startswith("it is not known how long readers of orders-0 wait for producer 7")
        # If a coordinator knows when it began, the timestamps of its records do not matter.
        known = diagnose_lso(snapshot(**only, txns={7: STUCK}))
        assert (known.partitions[0].age_ms, known.problems) == (12_000, ())


def test_a_transaction_whose_coordinator_may_not_have_answered_is_not_an_orphan() -> None:
    silent = "no broker leads __transaction_state-3"
    only = {"ends": {ORDERS: ends(40, 90)}, "producers": {ORDERS: (producer(40),)}}
    report = diagnose_lso(snapshot(**only, txns={}, unanswered_coordinators=(silent,)))
    assert [row.is_orphan for row in report.partitions] == [False]
    assert [pin.is_orphan for pin in report.pins] == [False]
    assert report.problems == (silent,)
    # Here its coordinator did answer, and has no open transaction.
    ended = {7: described("CompleteCommit", partitions=())}
    known = diagnose_lso(snapshot(**only, txns=ended, unanswered_coordinators=(silent,)))
    assert [row.is_orphan for row in known.partitions] == [True]


def test_the_client_is_named_where_the_cluster_remembers_its_requests() -> None:
    """The last one under the id may come from the producer that is about to take over."""
    requests = (rpc(), rpc("InitProducerId", 10, producer_id=-1, producer_epoch=-1, host="10.0.0.10"))
    report = diagnose_lso(snapshot(rpcs={"orders-sink": requests}))
    assert [(row.client_id, row.host) for row in report.partitions] == [
        ("shop", "10.0.0.9"),
        ("shop", "10.0.0.9"),
        (None, None),
    ]


def test_a_gap_without_an_open_transaction_has_no_producer() -> None:
    """It ended between two questions, or its marker is not replicated yet."""
    report = diagnose_lso(snapshot(ends={ORDERS: ends(40, 90)}, producers={ORDERS: (producer(-1),)}, txns={}))
    assert report.partitions[0].producer_id is None
    assert report.pins == ()


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
