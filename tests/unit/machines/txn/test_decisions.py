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
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
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


def test_a_new_id_begins_with_epoch_0() -> None:
    record = decide_init(None).record
    assert record is not None
    assert (record.producer_id, record.producer_epoch, record.state, record.start_ms) == (100, 0, EMPTY, -1)


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT, ONGOING])
def test_an_unfinished_transaction_has_to_be_finished_first(state: TxnState) -> None:
    assert decide_init(a_txn(state)) == Decision(CONCURRENT_TRANSACTIONS)


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


def test_the_previous_id_is_taken_only_with_an_exhausted_epoch() -> None:
    rotated = a_txn(EMPTY, epoch=0, producer_id=8, previous=7, last_epoch=32766)
    granted = decide_init(rotated, 7, 32766).record
    assert granted is not None
    assert (granted.producer_id, granted.producer_epoch) == (8, 0)
    assert decide_init(rotated, 7, 32765).error == PRODUCER_FENCED


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


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_the_transaction(state: TxnState) -> None:
    record = machine.decide_add(a_txn(state), 7, 5, {ORDERS}, TV2, NOW).record
    assert record is not None
    assert (record.state, set(record.partitions), record.start_ms) == (ONGOING, {ORDERS}, NOW)
    assert record.client_transaction_version == 2


def test_a_further_partition_joins_and_a_known_one_costs_nothing() -> None:
    record = machine.decide_add(a_txn(ONGOING), 7, 5, {("more", 1)}, TV0, NOW).record
    assert record is not None
    assert (set(record.partitions), record.start_ms, record.updated_ms) == ({ORDERS, ("more", 1)}, 500, NOW)
    assert machine.decide_add(a_txn(ONGOING), 7, 5, {ORDERS}, TV0, NOW) == Decision()


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_nothing_joins_a_transaction_that_is_decided(state: TxnState) -> None:
    assert machine.decide_add(a_txn(state), 7, 5, {ORDERS}, TV0, NOW) == Decision(CONCURRENT_TRANSACTIONS)
    assert machine.verify_partition(a_txn(state), 7, 5, ORDERS) == CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", list(TxnState))
def test_a_stranger_joins_nothing(state: TxnState) -> None:
    txn = a_txn(state)
    for producer_id, epoch, error in (
        (8, 5, INVALID_PRODUCER_ID_MAPPING),
        (8, 4, INVALID_PRODUCER_ID_MAPPING),
        (7, 4, PRODUCER_FENCED),
        (7, 6, PRODUCER_FENCED),
    ):
        assert machine.decide_add(txn, producer_id, epoch, {ORDERS}, TV0, NOW) == Decision(error)
        assert machine.verify_partition(txn, producer_id, epoch, ORDERS) == error
        assert machine.decide_end(txn, producer_id, epoch, True, NOW) == Decision(error)
    assert machine.verify_partition(None, 7, 5, ORDERS) == INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_a_member_of_the_open_transaction_is_verified(state: TxnState) -> None:
    member = NONE if state is ONGOING else TRANSACTION_ABORTABLE
    assert machine.verify_partition(a_txn(state), 7, 5, ORDERS) == member
    assert machine.verify_partition(a_txn(state), 7, 5, ("more", 0)) == TRANSACTION_ABORTABLE


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


def test_the_producer_id_that_was_handed_out_has_to_wait_for_the_markers() -> None:
    prepared = decide_end_tv2(a_txn(ONGOING, epoch=32766), True, epoch=32766).record
    assert prepared is not None
    assert machine.identity_after(prepared) == (100, 0)
    wait = Decision(CONCURRENT_TRANSACTIONS)
    assert machine.decide_add(prepared, 100, 0, {ORDERS}, TV2, NOW) == wait
    assert decide_init(prepared, 100, 0) == wait
    for commit in (False, True):
        assert decide_end_tv2(prepared, commit, epoch=0, producer_id=100) == wait
    # A stranger is still one.
    assert machine.decide_add(prepared, 101, 0, {ORDERS}, TV2, NOW) == Decision(INVALID_PRODUCER_ID_MAPPING)
    assert machine.decide_add(prepared, 100, 1, {ORDERS}, TV2, NOW) == Decision(INVALID_PRODUCER_ID_MAPPING)
    assert decide_init(prepared, 101, 0) == Decision(PRODUCER_FENCED)
    assert decide_end_tv2(prepared, True, epoch=0, producer_id=101) == Decision(INVALID_PRODUCER_ID_MAPPING)


# --- time ---------------------------------------------------------------------------------------------------


def test_a_transaction_times_out_after_its_timeout_and_only_while_open() -> None:
    assert not machine.is_timed_out(a_txn(ONGOING), 60_500)
    assert machine.is_timed_out(a_txn(ONGOING), 60_501)
    for state in set(TxnState) - {ONGOING}:
        assert not machine.is_timed_out(a_txn(state), 10**12)


def test_an_id_expires_when_it_was_idle_for_long_enough() -> None:
    for state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
        assert not machine.is_expired(a_txn(state), 1000, 1499)
        assert machine.is_expired(a_txn(state), 1000, 1500)
    for state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT):
        assert not machine.is_expired(a_txn(state), 1000, 10**12)


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_what_is_decided_can_be_completed(state: TxnState) -> None:
    with pytest.raises(AssertionError, match="nothing to complete"):
        machine.complete(a_txn(state), NOW)
