"""Which registrations of a transactional id look like two processes that share it."""

from __future__ import annotations

from fencepost.diagnose.explain.explanation import diagnose_txn
from fencepost.diagnose.explain.findings import Cause
from fencepost.diagnose.history import Duel, find_duel
from fencepost.diagnose.snapshot import LogEntry
from fencepost.machines.txn.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT, TxnState
from tests.unit.diagnose.snapshots import NOW_MS, described, entry, txn_snapshot

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
