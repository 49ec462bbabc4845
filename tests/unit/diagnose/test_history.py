"""The cause of each record of a transactional id follows from the neighbouring records; so does a duel of two."""

from __future__ import annotations

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.explain.explanation import diagnose_txn
from fencepost.diagnose.explain.findings import Cause
from fencepost.diagnose.history import Abort, Duel, diagnose_history, find_duel, transitions_of, why_aborted
from fencepost.diagnose.snapshot import HistorySnapshot, LogEntry
from fencepost.machines.txn.states import TxnState
from fencepost.protocol import errors
from tests.unit.diagnose.snapshots import NOW_MS, described, entry, rpc, txn_snapshot

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = TxnState


def causes_of(*entries: LogEntry) -> list[str]:
    return [transition.what for transition in transitions_of(entries)]


def test_a_transaction_that_commits() -> None:
    assert causes_of(
        entry(EMPTY, -900),
        entry(ONGOING, -800),
        entry(ONGOING, -700, start_ms=-800, partitions={("orders", 0), ("payments", 3)}),
        entry(PREPARE_COMMIT, -600, start_ms=-800),
        entry(COMPLETE_COMMIT, -595, start_ms=-800),
    ) == [
        "a producer registered (InitProducerId)",
        "began",
        "added payments-3",
        "commit decided by its client, after 200 ms",
        "committed: all markers are written, after 5 ms",
    ]


def test_a_producer_that_takes_over_fences_the_one_before() -> None:
    took_over = causes_of(entry(EMPTY, -900), entry(EMPTY, -100, epoch=5))[1]
    assert took_over == "a producer registered (InitProducerId): epoch 4 -> 5, producers with 4 or less are fenced"
    asked_again = causes_of(entry(EMPTY, -900), entry(EMPTY, -100))[1]
    assert asked_again == "a producer asked for its epoch again (InitProducerId)"
    rotated = causes_of(entry(EMPTY, -900, epoch=32766), entry(EMPTY, -100, epoch=0, producer_id=8))[1]
    assert "got a new id, 8: the epochs of 7 were used up" in rotated


def test_an_order_of_an_operator_is_told_from_the_registration_of_a_producer() -> None:
    fenced = causes_of(entry(EMPTY, -900), entry(EMPTY, -100, epoch=5, timeout_ms=59_999))[1]
    assert fenced == "an operator fenced it: epoch 4 -> 5, producers with 4 or less are fenced"


def test_a_new_producer_id_whose_epochs_are_not_used_up_comes_from_a_start_after_a_loss() -> None:
    replaced = causes_of(entry(COMPLETE_COMMIT, -900), entry(EMPTY, -100, epoch=0, producer_id=8))[1]
    assert replaced.startswith("the broker gave it a new id, 8, because records may be lost")
    assert replaced.endswith("producers with 7 are refused")


FENCED_BY_ORDER = entry(EMPTY, -900, epoch=6, timeout_ms=59_999)


def prepared(*, epoch: int, version: int, open_ms: int = 5_000) -> LogEntry:
    return entry(PREPARE_ABORT, -1000, epoch=epoch, version=version, start_ms=-1000 - open_ms)


@pytest.mark.parametrize(
    ("began_with", "aborted", "next_one", "why"),
    [
        # A client of TV1 does not change the epoch.
        (entry(ONGOING, -6000), prepared(epoch=4, version=0), None, Abort.CLIENT),
        (entry(ONGOING, -6000), prepared(epoch=5, version=2), None, Abort.TAKEOVER),
        (entry(ONGOING, -62000), prepared(epoch=5, version=2, open_ms=61_000), None, Abort.TIMEOUT),
        # Even if it is late: the client was first.
        (entry(ONGOING, -62000), prepared(epoch=4, version=0, open_ms=61_000), None, Abort.CLIENT),
        # With TV2 every end changes the epoch.
        (entry(ONGOING, -6000, version=2), prepared(epoch=5, version=2), None, Abort.CLIENT_OR_TAKEOVER),
        (entry(ONGOING, -6000, version=2), prepared(epoch=5, version=2), entry(ONGOING, -9), Abort.CLIENT_OR_TAKEOVER),
        (entry(ONGOING, -6000, version=2), prepared(epoch=5, version=2), entry(EMPTY, -900, epoch=6), Abort.TAKEOVER),
        (entry(ONGOING, -62000, version=2), prepared(epoch=5, version=2, open_ms=61_000), None, Abort.TIMEOUT),
        # An operator's order registers with a timeout that is lower by a millisecond.
        (entry(ONGOING, -6000), prepared(epoch=5, version=0), FENCED_BY_ORDER, Abort.ORDER),
        (entry(ONGOING, -6000, version=2), prepared(epoch=5, version=2), FENCED_BY_ORDER, Abort.ORDER),
        # Compaction has removed the record before.
        (None, prepared(epoch=5, version=2), None, Abort.CLIENT_OR_TAKEOVER),
    ],
)  # fmt: skip
def test_the_cause_of_an_abort_follows_from_the_epoch_and_the_time(
    began_with: LogEntry | None, aborted: LogEntry, next_one: LogEntry | None, why: Abort
) -> None:
    assert aborted.txn is not None
    found = why_aborted(began_with.txn if began_with else None, aborted.txn, next_one.txn if next_one else None)
    assert found is why


def test_the_record_after_the_markers_shows_the_cause_of_an_abort() -> None:
    what = causes_of(
        entry(ONGOING, -6000, version=2),
        entry(PREPARE_ABORT, -1000, epoch=5, version=2, start_ms=-6000),
        entry(COMPLETE_ABORT, -990, epoch=5, version=2, start_ms=-6000),
        entry(EMPTY, -980, epoch=6, version=2),
    )
    assert what[0] == "open", "compaction has removed the record before"
    assert what[1] == "abort decided by its coordinator, because a new producer registered the id, after 5 s"
    assert what[2] == "aborted: all markers are written, after 10 ms"


def test_an_abort_without_an_open_transaction_only_changes_the_epoch() -> None:
    what = causes_of(entry(COMPLETE_COMMIT, -900), entry(PREPARE_ABORT, -800, epoch=5, version=2, start_ms=-800))
    assert what[1] == "abort by its client without an open transaction: only the epoch changes"


def test_the_history_includes_requests() -> None:
    log = NamedPartition("__transaction_state", 39)
    requests = (rpc(error_code=errors.INVALID_PRODUCER_EPOCH), rpc("EndTxn", producer_id=-1, duration_us=-1))
    snapshot = HistorySnapshot(now_ms=NOW_MS, transactional_id="orders-sink", log=log, entries=(), rpcs=requests)
    found = diagnose_history(snapshot).rpcs
    assert found is not None
    assert [(r.name, r.result, r.duration_us, r.producer_id) for r in found] == [
        ("Produce", "INVALID_PRODUCER_EPOCH", 500, 7),
        ("EndTxn", None, None, None),
    ]


def test_the_last_records_have_the_causes_that_they_have_among_all() -> None:
    entries = (
        entry(EMPTY, -900),
        entry(ONGOING, -800),
        entry(PREPARE_ABORT, -100, epoch=5),
        entry(COMPLETE_ABORT, -99),
    )
    snapshot = HistorySnapshot(
        now_ms=NOW_MS, transactional_id="orders-sink", log=None, entries=entries, rpcs=(rpc(), rpc("EndTxn"))
    )
    whole, last = diagnose_history(snapshot), diagnose_history(snapshot, 1)
    assert last.transitions == whole.transitions[-1:]
    assert [request.name for request in last.rpcs or ()] == ["EndTxn"]
    assert diagnose_history(snapshot, 99) == whole


def test_a_tombstone_is_the_end_of_an_id() -> None:
    tombstone = LogEntry(offset=9, timestamp_ms=NOW_MS, txn=None)
    log = NamedPartition("__transaction_state", 39)
    entries = (entry(EMPTY, -900), tombstone)
    snapshot = HistorySnapshot(now_ms=NOW_MS, transactional_id="orders-sink", log=log, entries=entries)
    last = diagnose_history(snapshot).transitions[-1]
    assert (last.state, last.at_ms, last.producer_id) == ("Dead", NOW_MS, None)
    assert "transactional.id.expiration.ms" in last.what


DUEL = tuple(entry(EMPTY, at_ms, epoch=4 + n) for n, at_ms in enumerate((-40_000, -30_000, -20_000, -10_000)))


def test_four_registrations_in_a_minute_are_a_duel() -> None:
    assert find_duel(DUEL, NOW_MS) == Duel(4, NOW_MS - 40_000, NOW_MS - 10_000)
    assert find_duel(DUEL[:3], NOW_MS) is None
    restarts = [entry(EMPTY, -3_600_000 * n, epoch=5 - n) for n in range(5, 0, -1)]
    assert find_duel(restarts, NOW_MS) is None


def test_a_registration_after_a_commit_does_not_count_and_one_after_an_abort_does() -> None:
    """Our sink registers before each micro-batch with TV1."""

    def rounds(*states: TxnState) -> list[LogEntry]:
        return [entry(state, -40_000 + 100 * n + step) for n in range(5) for step, state in enumerate(states)]

    assert find_duel(rounds(EMPTY, ONGOING, COMPLETE_COMMIT), NOW_MS) is None
    assert find_duel(rounds(EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT), NOW_MS) is not None


def test_the_orders_of_an_operator_do_not_count() -> None:
    orders = [
        step
        for n in range(3)
        for step in (entry(EMPTY, -40_000 + 100 * n), entry(EMPTY, -39_950 + 100 * n, timeout_ms=59_999))
    ]
    assert find_duel(orders, NOW_MS) is None
    assert find_duel([*orders, entry(EMPTY, -10_000)], NOW_MS) == Duel(4, NOW_MS - 40_000, NOW_MS - 10_000)


def test_a_duel_of_long_ago_is_history_for_explain_too() -> None:
    old = tuple(entry(EMPTY, -800_000 + n) for n in range(4))
    assert find_duel(old, NOW_MS) is None
    explanation = diagnose_txn(txn_snapshot(described("Empty", partitions=(), start_ms=-1), history=old))
    assert explanation.causes == (Cause.REGISTERED,)
