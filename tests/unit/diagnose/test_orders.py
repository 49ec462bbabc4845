"""The result of an order, by the log afterwards."""

from __future__ import annotations

from fencepost.diagnose.orders import was_committed
from fencepost.machines.txn.states import TxnState
from tests.unit.diagnose.snapshots import entry

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = TxnState


def test_a_client_that_commits_just_before_it_is_fenced_was_faster() -> None:
    committed = [entry(ONGOING, -9), entry(PREPARE_COMMIT, -8), entry(COMPLETE_COMMIT, -7), entry(EMPTY, -1, epoch=5)]
    assert was_committed(committed)


def test_a_fence_aborts_whatever_was_committed_before() -> None:
    assert not was_committed(
        [
            entry(COMPLETE_COMMIT, -90),
            entry(ONGOING, -9),
            entry(PREPARE_ABORT, -8, epoch=5),
            entry(COMPLETE_ABORT, -7, epoch=5),
            entry(EMPTY, -1, epoch=6),
        ]
    )


def test_a_log_that_cannot_be_read_tells_nothing() -> None:
    assert not was_committed([])
