"""Each check of `fencepost doctor` over snapshots made by hand: one that it must find, one that it must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencepost.client.admin.answers import ListedTxn, NamedPartition
from fencepost.client.admin.groups import GroupOffset
from fencepost.diagnose.doctor.cluster import (
    diagnose_copies,
    diagnose_last_epoch,
    diagnose_max_timeout,
    diagnose_memory,
    diagnose_mixed_releases,
    diagnose_verification,
    release_of,
)
from fencepost.diagnose.doctor.findings import (
    DoctorFinding,
    DoctorSettings,
    DoctorSnapshot,
    SecondLook,
    Severity,
    StateTopic,
    rank,
)
from fencepost.diagnose.doctor.ids import (
    diagnose_expiry,
    diagnose_names,
    diagnose_spread,
    looks_like_a_pod,
    looks_random,
)
from fencepost.diagnose.doctor.report import diagnose_doctor
from fencepost.diagnose.doctor.transactions import (
    diagnose_duels,
    diagnose_groups,
    diagnose_hangs,
    diagnose_pending,
    diagnose_stalls,
    diagnose_timeouts,
    diagnose_undelivered,
)
from fencepost.diagnose.snapshot import Ends, Look, TxnsSnapshot
from fencepost.machines.txn.records import partition_for
from fencepost.machines.txn.states import EMPTY
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, described, ends, entry, producer

PROBLEM, RISK, INFORMATION = Severity.PROBLEM, Severity.RISK, Severity.INFORMATION
HEALTHY_TOPIC = StateTopic(
    partition_count=50,
    replication_factor=3,
    min_insync_replicas=2,
    delete_retention_ms=86_400_000,
    cleanup_policy="compact",
    unclean_leader_election=False,
)
HEALTHY_SETTINGS = DoctorSettings(
    max_timeout_ms=900_000, abort_check_ms=10_000, expiration_ms=604_800_000, verifies_partitions=True
)


def ids(*names: str, state: str = "CompleteCommit") -> TxnsSnapshot:
    listed = tuple(ListedTxn(name, 1, number, state) for number, name in enumerate(names))
    return TxnsSnapshot(now_ms=NOW_MS, listed=listed, described={})


def snapshot(**changes: Any) -> DoctorSnapshot:
    """A healthy cluster of three brokers, without transactions."""
    fields: dict[str, Any] = {
        "now_ms": NOW_MS,
        "cluster_id": "c",
        "broker_count": 3,
        "is_fencepost": False,
        "lso": Look(now_ms=NOW_MS, ends={ORDERS: ends(50, 50)}),
        "txns": ids(),
        "state_topic": HEALTHY_TOPIC,
        "settings": HEALTHY_SETTINGS,
    }
    return DoctorSnapshot(**fields | changes)


def stalled(start_ms: int = NOW_MS - 120_000, timeout_ms: int = 600_000) -> DoctorSnapshot:
    """`orders-sink` is open on orders-0 for two minutes; 10 offsets wait."""
    txn = described(start_ms=start_ms, timeout_ms=timeout_ms, partitions=(ORDERS,))
    lso = Look(
        now_ms=NOW_MS, ends={ORDERS: ends(40, 50)}, producers={ORDERS: (producer(40),)}, txns={txn.producer_id: txn}
    )
    listed = ListedTxn(txn.transactional_id, 1, txn.producer_id, txn.state)
    txns = TxnsSnapshot(now_ms=NOW_MS, listed=(listed,), described={txn.transactional_id: txn})
    return snapshot(lso=lso, txns=txns)


def with_groups(seen: DoctorSnapshot, **groups: dict[NamedPartition, int | None]) -> DoctorSnapshot:
    offsets = {
        id_: {where: GroupOffset(offset, False) for where, offset in found.items()} for id_, found in groups.items()
    }
    return replace(seen, lso=replace(seen.lso, groups=offsets))


def one(findings: list[DoctorFinding]) -> DoctorFinding:
    [finding] = findings
    return finding


def test_a_healthy_cluster_has_no_findings() -> None:
    report = diagnose_doctor(snapshot())
    assert (report.findings, report.problem_count, report.risk_count) == ((), 0, 0)


def test_readers_that_wait_for_too_long_are_a_problem() -> None:
    found = one(diagnose_stalls(stalled()))
    assert (found.severity, found.check, found.age_ms) == (PROBLEM, "lso-stall", 120_000)
    assert found.summary == "readers of orders-0 wait for `orders-sink` for 2 m"
    assert found.command == "fencepost txn explain orders-sink"
    assert one(diagnose_stalls(stalled(start_ms=NOW_MS - 5000), max_age_ms=1000)).severity is PROBLEM


def test_readers_that_do_not_wait_for_long_yet_are_a_risk_with_its_age_before_all_other_risks() -> None:
    young = stalled(start_ms=NOW_MS - 5000)
    found = one(diagnose_stalls(young))
    assert (found.severity, found.check, found.age_ms) == (RISK, "lso-stall", 5000)
    assert found.summary == "readers of orders-0 wait for `orders-sink` for 5 s"
    risky = replace(young, settings=replace(HEALTHY_SETTINGS, verifies_partitions=False))
    assert [finding.check for finding in diagnose_doctor(risky).findings] == ["lso-stall", "verification"]


def test_a_transaction_of_a_moment_is_no_risk() -> None:
    assert diagnose_stalls(stalled(start_ms=NOW_MS - 900)) == []


def test_a_transaction_that_its_coordinator_does_not_know_hangs_and_is_no_stall() -> None:
    before = {ORDERS: (producer(40),)}
    lso = Look(now_ms=NOW_MS, ends={ORDERS: ends(40, 50)}, producers=before, first_record_ms={ORDERS: 1})
    seen = snapshot(lso=lso)
    found = one(diagnose_hangs(seen))
    assert found.command == "fencepost txn abort --topic orders --partition 0 --producer-id 7"
    assert found.summary == "a transaction of producer 7 hangs on orders-0 since offset 40"
    assert diagnose_stalls(seen) == []


@pytest.mark.parametrize("is_denied", [True, False])
def test_readers_that_wait_for_an_unknown_transaction_are_a_problem(is_denied: bool) -> None:
    denied = frozenset({ORDERS}) if is_denied else frozenset()
    lso = Look(now_ms=NOW_MS, ends={ORDERS: ends(40, 50), PAYMENTS: ends(7, 7)}, denied=denied)
    # More was written meanwhile, but readers got no further.
    report = diagnose_doctor(snapshot(lso=lso, second_look=SecondLook(after_ms=3000, ends={ORDERS: ends(40, 60)})))
    found = one(list(report.findings))
    assert (found.check, found.severity, report.problem_count) == ("unseen", PROBLEM, 1)
    assert found.summary == "readers of orders-0 wait, and it is not known for which transaction"
    assert "the last stable offset has not moved for 3 s" in found.detail
    assert ("READ on topic orders is missing" in found.detail) is is_denied


@pytest.mark.parametrize("later", [{ORDERS: ends(51, 60)}, {}], ids=["it moved", "no second answer"])
def test_an_unknown_transaction_is_no_problem_unless_the_last_stable_offset_stays(
    later: dict[NamedPartition, Ends],
) -> None:
    lso = Look(now_ms=NOW_MS, ends={ORDERS: ends(40, 50)}, denied=frozenset({ORDERS}))
    assert diagnose_doctor(snapshot(lso=lso, second_look=SecondLook(after_ms=3000, ends=later))).findings == ()


@pytest.mark.parametrize(
    ("open_ms", "severity"),
    [(47_000, None), (49_000, RISK), (70_000, RISK), (90_000, PROBLEM)],
    ids=["early", "near", "just over", "not aborted"],
)
def test_a_transaction_near_its_timeout_is_a_risk_and_one_far_beyond_it_a_problem(
    open_ms: int, severity: Severity | None
) -> None:
    found = diagnose_timeouts(stalled(start_ms=NOW_MS - open_ms, timeout_ms=60_000))
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])


def test_a_decision_without_markers_is_a_problem_after_a_while() -> None:
    txn = described("PrepareCommit")

    def decided(ago_ms: int) -> list[DoctorFinding]:
        txns = TxnsSnapshot(
            now_ms=NOW_MS,
            listed=(),
            described={"orders-sink": txn},
            updated_ms={"orders-sink": NOW_MS - ago_ms},
        )
        return diagnose_undelivered(snapshot(txns=txns))

    assert decided(2000) == []
    found = one(decided(45_000))
    assert found.summary == "`orders-sink` waits for its markers for 45 s (PrepareCommit)"


def test_a_duel_is_a_problem_and_the_command_is_the_one_that_names_both_clients() -> None:
    duel = tuple(entry(EMPTY, at_ms, epoch=4 + n) for n, at_ms in enumerate((-40_000, -30_000, -20_000, -10_000)))
    found = one(diagnose_duels(snapshot(recent={"orders-sink": duel})))
    assert found.summary == "4 producers registered `orders-sink` within 30 s"
    assert found.command == "fencepost txn explain orders-sink"


def test_a_group_behind_a_stuck_last_stable_offset_is_named_with_what_is_hidden_from_it() -> None:
    seen = with_groups(stalled(), billing={ORDERS: 38}, uncommitted={ORDERS: 50})
    found = one(diagnose_groups(seen))
    assert found.groups == ("billing",)
    assert found.summary == "group `billing` waits behind the last stable offset of orders-0"
    assert found.detail.startswith("If it reads with read_committed, it cannot see 10 offsets; ")
    assert found.detail.endswith("it can still read 2 offsets before them.")
    done = one(diagnose_groups(with_groups(stalled(), billing={ORDERS: 40})))
    assert done.detail.endswith("it has read all before them.")
    assert diagnose_groups(with_groups(stalled(start_ms=NOW_MS - 100), billing={ORDERS: 38})) == []


def test_a_group_without_a_committed_offset_waits_behind_a_stuck_last_stable_offset_too() -> None:
    found = one(diagnose_groups(with_groups(stalled(), new={ORDERS: None})))
    assert found.groups == ("new",)
    assert found.detail.endswith("It has committed no offset on orders-0.")


def test_a_group_whose_offset_is_in_a_transaction_that_does_not_end_cannot_start() -> None:
    home = NamedPartition("__consumer_offsets", 0)

    def pending(open_ms: int) -> list[DoctorFinding]:
        txn = described(start_ms=NOW_MS - open_ms, timeout_ms=600_000, partitions=(home,))
        lso = Look(
            now_ms=NOW_MS,
            ends={home: ends(4, 5), ORDERS: ends(50, 50)},
            producers={home: (producer(4),)},
            txns={txn.producer_id: txn},
            groups={"billing": {ORDERS: GroupOffset(30, True)}, "other": {ORDERS: GroupOffset(30, False)}},
        )
        return diagnose_pending(snapshot(lso=lso))

    found = one(pending(120_000))
    assert found.groups == ("billing",)
    assert found.summary == "group `billing` has offsets of orders-0 in a transaction on __consumer_offsets-0"
    assert found.command == "fencepost group describe billing"
    # Every group that commits its offsets in transactions has such offsets for a moment.
    assert pending(100) == []


@pytest.mark.parametrize(("limit_ms", "count"), [(900_000, 0), (86_400_000, 1), (30_000, 1), (None, 0)])
def test_a_limit_of_timeouts_that_is_too_high_or_too_low_is_a_risk(limit_ms: int | None, count: int) -> None:
    found = diagnose_max_timeout(snapshot(settings=replace(HEALTHY_SETTINGS, max_timeout_ms=limit_ms)))
    assert [finding.severity for finding in found] == [RISK] * count


def test_too_few_copies_are_a_risk_where_there_could_be_more() -> None:
    poor = replace(HEALTHY_TOPIC, replication_factor=1, min_insync_replicas=1)
    found = one(diagnose_copies(snapshot(state_topic=poor)))
    assert (found.check, found.severity) == ("replication", RISK)


def test_two_copies_have_to_be_in_sync_only_where_there_are_three() -> None:
    def found(copies: int) -> list[str]:
        topic = replace(HEALTHY_TOPIC, replication_factor=copies, min_insync_replicas=1)
        return [f.check for f in diagnose_copies(snapshot(state_topic=topic))]

    # With fewer copies, the command that sets it to two would stop transactions.
    assert [found(copies) for copies in (1, 2, 3)] == [["replication"], ["replication"], ["min-isr"]]


@pytest.mark.parametrize("is_fencepost", [True, False])
def test_one_broker_is_not_nagged_about_copies(is_fencepost: bool) -> None:
    poor = replace(HEALTHY_TOPIC, replication_factor=1, min_insync_replicas=1)
    seen = snapshot(state_topic=poor, broker_count=1, is_fencepost=is_fencepost)
    found = one(diagnose_copies(seen))
    assert found.severity is INFORMATION
    assert ("Fencepost" in found.detail) is is_fencepost


@pytest.mark.parametrize(
    ("change", "check", "severity"),
    [
        ({"delete_retention_ms": 1000}, "delete-retention", RISK),
        ({"cleanup_policy": "compact,delete"}, "cleanup-policy", PROBLEM),
        ({"unclean_leader_election": True}, "unclean-election", RISK),
    ],
)
def test_settings_with_which_fencing_does_not_last_are_found(
    change: dict[str, Any], check: str, severity: Severity
) -> None:
    found = one(diagnose_memory(snapshot(state_topic=replace(HEALTHY_TOPIC, **change))))
    assert (found.check, found.severity) == (check, severity)


def test_ids_that_are_forgotten_within_a_day_are_a_risk() -> None:
    settings = replace(HEALTHY_SETTINGS, expiration_ms=3_600_000)
    assert one(diagnose_memory(snapshot(settings=settings))).check == "expiration"


def test_brokers_that_do_not_verify_are_a_risk_and_those_that_do_not_say_are_none() -> None:
    off = replace(HEALTHY_SETTINGS, verifies_partitions=False)
    assert one(diagnose_verification(snapshot(settings=off))).severity is RISK
    unknown = replace(HEALTHY_SETTINGS, verifies_partitions=None)
    assert diagnose_verification(snapshot(settings=unknown)) == []


@pytest.mark.parametrize(
    "id_",
    [
        "3f2b8f0e-5a0f-4b62-9d0e-0c9f2d3f4a11",
        "orders-3F2B8F0E-5A0F-4B62-9D0E-0C9F2D3F4A11",
        "sink-5a0f4b629d0e0c9f",
        "a3f09c77b1d2e4f5a6b7c8d9e0f10213",
        "orders-3f2b8f0e5a0f",  # The host name of a Docker container.
        "orders-01JCTA7Z5N3V8Q2X4M6R9W1E0K",  # A ULID.
        "orders-1794905446123",  # The time of the start in milliseconds.
    ],
)
def test_an_id_that_another_start_would_not_repeat_looks_random(id_: str) -> None:
    assert looks_random(id_)


@pytest.mark.parametrize(
    "id_",
    [
        "orders-sink-3",
        "refunds-20261116",
        "billing-0000000000000042",
        "deadbeefdeadbeef-words-only",
        "orders-000000000012",
        "orders-deadbeefcafe",
        "orders-20261116093000",
        "orders-9781794905446",
        "orders-01234567890123456789012345",
        # Kafka Streams keeps its UUID on disk, so that it stays the same.
        "shop-3f2b8f0e-5a0f-4b62-9d0e-0c9f2d3f4a11-2",
    ],
)
def test_an_id_that_stays_the_same_does_not_look_random(id_: str) -> None:
    assert not looks_random(id_)


@pytest.mark.parametrize(
    ("id_", "is_pod"),
    [
        ("orders-sink-7d4b9c6f5d-x2k8p", True),
        ("orders-sink-7d4b9c6f5d-x2k8p-0", True),
        ("orders-sink-0", False),  # A StatefulSet: the name stays.
        ("orders-sink-backfill-check", False),
        ("payments-flwchtrs-frsty", False),
    ],
)
def test_the_name_of_a_pod_of_a_deployment_is_recognised(id_: str, is_pod: bool) -> None:
    assert looks_like_a_pod(id_) is is_pod


def test_badly_chosen_ids_are_reported_together() -> None:
    names = [f"job-7d4b9c6f5d-x2k8{letter}" for letter in "bcdfg"]
    found = one(diagnose_names(snapshot(txns=ids("fine", *names))))
    assert found.summary.startswith("5 of 6 transactional ids look like the names of Kubernetes pods: `job-")
    assert found.transactional_ids == tuple(names)


def test_ids_about_to_expire_are_information() -> None:
    txns = replace(ids("old", "new"), updated_ms={"old": NOW_MS - 604_000_000, "new": NOW_MS - 1000})
    found = one(diagnose_expiry(snapshot(txns=txns)))
    assert (found.severity, found.transactional_ids) == (INFORMATION, ("old",))
    assert found.summary.startswith("1 transactional id expires soon, the first in 13 m")


def test_ids_that_crowd_on_one_partition_are_information_and_many_ids_by_chance_are_not() -> None:
    crowd = [name for name in (f"id-{n}" for n in range(20_000)) if partition_for(name, 50) == 7][:150]
    found = one(diagnose_spread(snapshot(txns=ids(*crowd))))
    assert (found.severity, found.summary) == (
        INFORMATION,
        "150 of 150 transactional ids are on __transaction_state-7",
    )
    assert diagnose_spread(snapshot(txns=ids(*(f"orders-sink-{n}" for n in range(2000))))) == []
    assert diagnose_spread(snapshot(txns=ids(*crowd[:20]))) == []


@pytest.mark.parametrize("is_fencepost", [True, False])
def test_every_problem_and_every_risk_has_a_command(is_fencepost: bool) -> None:
    topic = StateTopic(
        partition_count=50,
        replication_factor=1,
        min_insync_replicas=1,
        delete_retention_ms=1000,
        cleanup_policy="delete",
        unclean_leader_election=True,
    )
    settings = DoctorSettings(max_timeout_ms=86_400_000, expiration_ms=1000, verifies_partitions=False)
    unseen = Look(now_ms=NOW_MS, ends={ORDERS: ends(40, 50)})
    ill = snapshot(
        state_topic=topic,
        settings=settings,
        lso=unseen,
        second_look=SecondLook(after_ms=3000, ends=unseen.ends),
        is_fencepost=is_fencepost,
        txns=ids("3f2b8f0e-5a0f-4b62-9d0e-0c9f2d3f4a11", "orders-sink-7d4b9c6f5d-x2k8p"),
    )
    findings = [f for f in diagnose_doctor(ill).findings if f.severity is not INFORMATION]
    assert {f.check for f in findings} >= {"verification", "max-timeout", "expiration", "replication"}
    assert [f.check for f in findings if f.command is None] == []


def test_questions_without_an_answer_are_told_once_for_each_cause() -> None:
    problems = ("the offsets of a-0 are unknown: gone: at b:1", "broker 1 could not list: gone: at b:1", "no leader")
    assert diagnose_doctor(snapshot(problems=problems)).problems == (
        "the offsets of a-0 are unknown and broker 1 could not list: gone: at b:1",
        "no leader",
    )


def test_the_worst_comes_first_and_among_equals_the_oldest() -> None:
    def finding(severity: Severity, age_ms: int | None) -> DoctorFinding:
        return DoctorFinding(check="c", severity=severity, summary=f"{severity} {age_ms}", detail="", age_ms=age_ms)

    def hang(age_ms: int) -> DoctorFinding:
        return replace(finding(PROBLEM, age_ms), check="hanging")

    mixed = [finding(RISK, 99), finding(PROBLEM, None), finding(PROBLEM, 9), finding(PROBLEM, 5)]
    assert sorted(mixed, key=rank) == [mixed[2], mixed[3], mixed[1], mixed[0]]
    # A stall ends at its timeout; a hanging transaction never does.
    assert sorted([finding(PROBLEM, 9), hang(1)], key=rank) == [hang(1), finding(PROBLEM, 9)]


def test_partitions_of_a_topic_that_two_transactions_hold_are_found_once_each() -> None:
    report = diagnose_doctor(with_groups(stalled(), g={ORDERS: 40, PAYMENTS: 3}))
    assert [finding.check for finding in report.findings] == ["lso-stall", "group-waits"]


@pytest.mark.parametrize(
    ("level", "release"),
    [(20, (3, 9)), (22, (4, 0)), (25, (4, 0)), (27, (4, 1)), (28, (4, 2)), (29, (4, 2)), (30, None)],
)
def test_the_release_of_a_broker_is_known_by_the_metadata_version_that_it_supports(
    level: int, release: tuple[int, int] | None
) -> None:
    assert release_of(level) == release


@pytest.mark.parametrize(
    ("levels", "epoch", "severity"),
    [((29,), 4, INFORMATION), ((25, 30), 31_000, RISK), ((30,), 31_000, None), ((20,), 31_000, None), ((), 4, None)],
    ids=["4.2", "4.0 and 4.3, near", "4.3", "3.9", "not told"],
)
def test_a_release_that_loses_the_end_of_a_transaction_at_the_last_epoch_is_named(
    levels: tuple[int, ...], epoch: int, severity: Severity | None
) -> None:
    txns = replace(ids(), described={"orders-sink": described(producer_epoch=epoch)})
    seen = snapshot(metadata_versions=levels, ends_bump_epochs=True, txns=txns)
    found = diagnose_last_epoch(seen)
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert diagnose_last_epoch(replace(seen, ends_bump_epochs=False)) == []
    assert diagnose_last_epoch(replace(seen, is_fencepost=True)) == []


@pytest.mark.parametrize(
    ("levels", "is_found"),
    [((27, 29), True), ((20, 29, 30), True), ((29, 30), False), ((29, 29), False), ((25, 27), False)],
)
def test_brokers_of_4_2_among_older_ones_are_a_risk(levels: tuple[int, ...], is_found: bool) -> None:
    found = diagnose_mixed_releases(snapshot(metadata_versions=levels))
    assert [finding.severity for finding in found] == ([RISK] if is_found else [])
