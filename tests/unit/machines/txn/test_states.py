"""The states of a transactional id: Kafka's names and numbers, and the table of legal moves."""

from __future__ import annotations

from itertools import product

import pytest

from fencepost.machines.txn.states import LEGAL, IllegalMove, Txn, TxnState, apply

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = TxnState


# As Kafka writes it down: target, and the states that may come before.
VALID_PREVIOUS_STATES = {
    EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
    DEAD: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_EPOCH_FENCE: {ONGOING},
}


@pytest.mark.parametrize(("before", "after"), list(product(TxnState, TxnState)))
def test_a_move_is_legal_exactly_if_kafka_allows_it(before: TxnState, after: TxnState) -> None:
    assert (after in LEGAL[before]) == (before in VALID_PREVIOUS_STATES[after])


@pytest.mark.parametrize(("before", "after"), list(product(TxnState, TxnState)))
def test_an_illegal_move_is_a_hard_error_and_changes_nothing(before: TxnState, after: TxnState) -> None:
    known = Txn("t1", 7, 5, 60_000, before)
    txns = {"t1": known}
    record = Txn("t1", 7, 6, 60_000, after)
    if after in LEGAL[before]:
        apply(txns, record)
        assert txns == ({} if after is DEAD else {"t1": record})
    else:
        with pytest.raises(IllegalMove, match=f"{before.kafka_name} -> {after.kafka_name}"):
            apply(txns, record)
        assert txns == {"t1": known}


def test_states_have_kafkas_names_and_numbers() -> None:
    assert [(int(state), state.kafka_name) for state in TxnState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
