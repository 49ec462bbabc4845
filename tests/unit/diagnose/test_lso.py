"""Which transaction pins the last stable offset, by the answers of leaders and coordinators."""

from __future__ import annotations

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.lso import diagnose_lso
from fencepost.diagnose.snapshot import Look
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
