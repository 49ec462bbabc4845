"""The decisions about one transactional id, case by case.

Whole conversations are in `tests/transcripts`; here is what is easier to enumerate than to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

import pytest

from fencepost.machines.txn import decisions as machine
from fencepost.machines.txn.decisions import Decision
from fencepost.machines.txn.states import Txn, TxnState
from fencepost.protocol.batch import MAX_PRODUCER_EPOCH
from fencepost.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
)
from fencepost.protocol.transaction_version import TV0, TV1, TV2, TransactionVersion

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = TxnState
ORDERS = ("orders", 0)
NOW = 1_000


def a_txn(state: TxnState, epoch: int = 5, producer_id: int = 7, previous: int = 7, last_epoch: int = -1) -> Txn:
    has_partitions = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    return Txn(
        "t1",
        producer_id,
        epoch,
        60_000,
        state,
        frozenset({ORDERS}) if has_partitions else frozenset(),
        -1 if state is EMPTY else 500,
        500,
        previous,
        last_producer_epoch=last_epoch,
    )


def new_ids() -> Iterator[int]:
    return count(100)


def decide_init(txn: Txn | None, producer_id: int = -1, epoch: int = -1) -> Decision:
    return machine.decide_init(txn, "t1", producer_id, epoch, 60_000, NOW, new_ids().__next__)


def decide_end(txn: Txn | None, commit: bool, epoch: int = 5, producer_id: int = 7) -> Decision:
    return machine.decide_end(txn, producer_id, epoch, commit, NOW)


def decide_end_tv2(txn: Txn | None, commit: bool, epoch: int = 5, producer_id: int = 7) -> Decision:
    return machine.decide_end_and_bump(txn, producer_id, epoch, commit, NOW, new_ids().__next__)


# --- InitProducerId -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize(
    ("asked", "current", "last", "granted"),
    [
        ((-1, -1), 5, -1, (7, 6, -1)),  # A new instance.
        ((7, 5), 5, -1, (7, 6, 5)),  # The owner, which wants a new epoch.
        ((7, 4), 5, 4, (7, 5, 4)),  # A retry of the owner's: the same again.
        ((7, 4), 5, -1, None),
        ((7, 6), 5, -1, None),
        ((8, 5), 5, -1, None),
        ((-1, -1), 32765, -1, (7, 32766, -1)),
        ((-1, -1), 32766, -1, (100, 0, -1)),  # Exhausted: a new id.
        ((7, 32766), 32766, -1, (100, 0, 32766)),
        ((-1, -1), 32767, -1, (100, 0, -1)),
        ((7, 32765), 32766, -1, None),
    ],
)
def test_an_epoch_is_granted_or_the_producer_fenced(
    state: TxnState, asked: tuple[int, int], current: int, last: int, granted: tuple[int, int, int] | None
) -> None:
    decision = decide_init(a_txn(state, epoch=current, last_epoch=last), *asked)
    if granted is None:
        assert decision == Decision(PRODUCER_FENCED)
        return
    record = decision.record
    assert record is not None
    assert (record.producer_id, record.producer_epoch, record.last_producer_epoch) == granted
    assert (record.state, record.partitions, record.start_ms, record.updated_ms) == (EMPTY, frozenset(), -1, NOW)
    assert record.previous_producer_id == 7


# --- fencing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "epoch", "prepared", "completed"),
    [
        (TV2, 5, (7, 6, -1, 5), (7, 6)),
        (TV2, 32766, (7, 32767, 100, 32766), (100, 0)),
        (TV2, 32767, (7, 32767, 100, 32767), (100, 0)),
        (TV1, 5, (7, 6, -1, -1), (7, 6)),
        (TV1, 32766, (7, 32767, -1, -1), (7, 32767)),
        (TV1, 32767, (7, 32767, -1, -1), (7, 32767)),
        (TV0, 5, (7, 6, -1, -1), (7, 6)),
    ],
)
def test_fencing_takes_an_epoch_that_no_client_has(
    version: TransactionVersion, epoch: int, prepared: tuple[int, int, int, int], completed: tuple[int, int]
) -> None:
    record = machine.decide_fence(a_txn(ONGOING, epoch=epoch), version, NOW, new_ids().__next__).record
    assert record is not None
    found = (record.producer_id, record.producer_epoch, record.next_producer_id, record.last_producer_epoch)
    assert (record.state, found) == (PREPARE_ABORT, prepared)
    assert record.producer_epoch <= MAX_PRODUCER_EPOCH
    done = machine.complete(record, NOW)
    assert (done.state, done.producer_id, done.producer_epoch) == (COMPLETE_ABORT, *completed)
    assert machine.identity_after(record) == completed


@pytest.mark.parametrize("state", [s for s in TxnState if s is not ONGOING])
def test_only_an_open_transaction_can_be_fenced(state: TxnState) -> None:
    with pytest.raises(AssertionError, match="only Ongoing can be fenced"):
        machine.decide_fence(a_txn(state), TV2, NOW, new_ids().__next__)


# --- AddPartitionsToTxn -------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_nothing_joins_a_transaction_that_is_decided(state: TxnState) -> None:
    assert machine.decide_add(a_txn(state), 7, 5, {ORDERS}, TV0, NOW) == Decision(CONCURRENT_TRANSACTIONS)
    assert machine.verify_partition(a_txn(state), 7, 5, ORDERS) == CONCURRENT_TRANSACTIONS


# --- EndTxn -------------------------------------------------------------------------------------------------

OK = "ok"
BUMP = "bump"
TV1_TABLE: dict[TxnState, tuple[int | str, ...]] = {
    # state: (abort, commit)
    EMPTY: (INVALID_TXN_STATE, INVALID_TXN_STATE),
    ONGOING: (PREPARE_ABORT, PREPARE_COMMIT),
    PREPARE_ABORT: (CONCURRENT_TRANSACTIONS, CONCURRENT_TRANSACTIONS),
    PREPARE_COMMIT: (CONCURRENT_TRANSACTIONS, CONCURRENT_TRANSACTIONS),
    COMPLETE_ABORT: (OK, INVALID_TXN_STATE),
    COMPLETE_COMMIT: (INVALID_TXN_STATE, OK),
}
TV2_TABLE: dict[TxnState, tuple[int | str, ...]] = {
    # While the markers are on their way, this epoch is that of the next transaction, which has to wait.
    # state: (abort of the epoch before, abort of this epoch, commit of the epoch before, commit of this epoch)
    EMPTY: (PRODUCER_FENCED, BUMP, PRODUCER_FENCED, INVALID_TXN_STATE),
    ONGOING: (PRODUCER_FENCED, BUMP, PRODUCER_FENCED, BUMP),
    PREPARE_ABORT: (CONCURRENT_TRANSACTIONS,) * 4,
    PREPARE_COMMIT: (CONCURRENT_TRANSACTIONS,) * 4,
    COMPLETE_ABORT: (OK, BUMP, INVALID_TXN_STATE, INVALID_TXN_STATE),
    COMPLETE_COMMIT: (INVALID_TXN_STATE, BUMP, OK, INVALID_TXN_STATE),
}


@pytest.mark.parametrize(("state", "commit"), list(product(TV1_TABLE, (False, True))))
def test_ending_a_transaction_of_version_1_follows_the_table(state: TxnState, commit: bool) -> None:
    expected = TV1_TABLE[state][commit]
    decision = decide_end(a_txn(state), commit)
    if expected == OK:
        assert decision == Decision()
    elif isinstance(expected, TxnState):
        assert decision.record is not None
        assert (decision.record.state, decision.record.producer_epoch) == (expected, 5)
    else:
        assert decision == Decision(int(expected))


@pytest.mark.parametrize(("state", "commit", "retry"), list(product(TV2_TABLE, (False, True), (False, True))))
def test_ending_a_transaction_of_version_2_follows_the_table(state: TxnState, commit: bool, retry: bool) -> None:
    expected = TV2_TABLE[state][2 * commit + (not retry)]
    txn = a_txn(state)._replace(client_transaction_version=TV2)
    decision = decide_end_tv2(txn, commit, epoch=4 if retry else 5)
    if expected == OK:
        assert decision == Decision()
    elif expected == BUMP:
        record = decision.record
        assert record is not None
        assert record.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
        assert (record.producer_epoch, record.last_producer_epoch) == (6, 5)
        assert record.start_ms == (500 if state is ONGOING else NOW)
        assert machine.identity_after(record) == (7, 6)
    else:
        assert decision == Decision(int(expected))


@pytest.mark.parametrize(("state", "commit"), [(COMPLETE_COMMIT, True), (COMPLETE_ABORT, False)])
def test_a_producer_fenced_by_one_of_version_1_does_not_receive_the_new_epoch(state: TxnState, commit: bool) -> None:
    txn = a_txn(state)._replace(client_transaction_version=TV0)
    assert decide_end_tv2(txn, commit, epoch=4) == Decision(PRODUCER_FENCED)


@pytest.mark.parametrize(("state", "commit"), list(product(TV2_TABLE, (False, True))))
def test_any_other_epoch_is_fenced(state: TxnState, commit: bool) -> None:
    for epoch in (-1, 0, 3, 6, 32766):
        assert decide_end_tv2(a_txn(state), commit, epoch=epoch) == Decision(PRODUCER_FENCED)
        assert decide_end(a_txn(state), commit, epoch=epoch) == Decision(PRODUCER_FENCED)
    assert decide_end_tv2(a_txn(state), commit, producer_id=8) == Decision(INVALID_PRODUCER_ID_MAPPING)
    assert decide_end_tv2(None, commit) == Decision(INVALID_PRODUCER_ID_MAPPING)


def test_the_last_epoch_ends_with_a_new_id_and_its_retry_finds_it() -> None:
    prepared = decide_end_tv2(a_txn(ONGOING, epoch=32766), True, epoch=32766).record
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, 32767, 100)
    done = machine.complete(prepared, NOW)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (100, 0, 7)
    assert (done.next_producer_id, done.last_producer_epoch) == (-1, 32766)
    assert decide_end_tv2(done, True, epoch=32766, producer_id=7) == Decision()
    assert decide_end_tv2(done, False, epoch=32766, producer_id=7) == Decision(INVALID_TXN_STATE)
    assert decide_end_tv2(done, True, epoch=32765, producer_id=7) == Decision(INVALID_PRODUCER_ID_MAPPING)
    later = done._replace(producer_epoch=1)
    assert decide_end_tv2(later, True, epoch=32766, producer_id=7) == Decision(INVALID_PRODUCER_ID_MAPPING)


# --- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_what_is_decided_can_be_completed(state: TxnState) -> None:
    with pytest.raises(AssertionError, match="nothing to complete"):
        machine.complete(a_txn(state), NOW)
