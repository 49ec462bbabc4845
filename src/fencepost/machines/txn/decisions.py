"""The transaction state machine of one transactional id: Kafka's rules as pure decisions.

Every `decide_*` reads a `Txn` and answers with a `Decision`: an error, or the `Txn` to record next. Nothing
changes here: the coordinator appends the record, and only `TxnShard.apply` takes it into the state, live and
at recovery alike. Follows TransactionMetadata and TransactionCoordinator of Apache Kafka 4.x; KIP-98, KIP-360
(epoch bumps on request), KIP-890 (an epoch for every transaction: transaction version 2, "TV2").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import IntEnum
from typing import NamedTuple

from fencepost.protocol import errors

MAX_EPOCH = 32767
EXHAUSTED_EPOCH = MAX_EPOCH - 1  # Clients are never handed the last epoch: the final abort needs it.
NO_ID = -1
NO_EPOCH = -1

TopicPartition = tuple[str, int]


class State(IntEnum):
    """The numbers are those of `__transaction_state`, the names those of the APIs."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        return KAFKA_NAMES[self]


KAFKA_NAMES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
BY_KAFKA_NAME = {name: state for state, name in KAFKA_NAMES.items()}

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = State
IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})  # No open transaction; these may expire.
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})  # Decided: the only way is forward.
IDLE_MOVES = frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD})
LEGAL: Mapping[State, Set[State]] = {
    EMPTY: IDLE_MOVES,
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: IDLE_MOVES,
    COMPLETE_ABORT: IDLE_MOVES,
    DEAD: frozenset(),
}


class IllegalMove(AssertionError):
    """A record would take a transaction where the table does not allow: a bug, never bad input."""


class Txn(NamedTuple):
    """Everything the coordinator knows of one transactional id; the value of one record."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    # Of the client whose transaction it is, and of whoever ended it: from 2 on, markers have an epoch of their own.
    client_transaction_version: int = 0
    # Not in the record: after a restart a retry that relied on it is fenced, as in Kafka.
    last_producer_epoch: int = NO_EPOCH


class Decision(NamedTuple):
    """An error for the client, or what to record; neither means that the answer is yes and nothing changes."""

    error: int = errors.NONE
    record: Txn | None = None


OK = Decision()
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def _moved(
    txn: Txn, state: State, partitions: frozenset[TopicPartition], start_ms: int, now_ms: int, client_version: int
) -> Txn:
    """The next record of a transaction whose owner stays the same. In full, as `_replace` takes three times as long."""
    return Txn(
        txn.transactional_id,
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        state,
        partitions,
        start_ms,
        now_ms,
        txn.producer_id,
        txn.next_producer_id,
        client_version,
        txn.last_producer_epoch,
    )


def refuse(error: int) -> Decision:
    return Decision(error)


def is_exhausted(epoch: int) -> bool:
    return epoch >= EXHAUSTED_EPOCH


# --- InitProducerId ---------------------------------------------------------------------------------------


def decide_init(
    txn: Txn | None,
    transactional_id: str,
    expected_producer_id: int,
    expected_epoch: int,
    timeout_ms: int,
    now_ms: int,
    allocate: Callable[[], int],
) -> Decision:
    """Give a producer its id and epoch. For an open transaction the caller must first `decide_fence` it."""
    if txn is None:
        producer_id = allocate()
        # Kafka: the previous id is that of the record before, and the first one counts as its own predecessor.
        fresh = Txn(transactional_id, producer_id, 0, timeout_ms, updated_ms=now_ms, previous_producer_id=producer_id)
        return Decision(record=fresh)
    if not is_expected_producer(txn, expected_producer_id, expected_epoch):
        return refuse(errors.PRODUCER_FENCED)
    if txn.state not in IDLE:
        return refuse(errors.CONCURRENT_TRANSACTIONS)
    producer_id, epoch, last_epoch = txn.producer_id, txn.producer_epoch, NO_EPOCH
    if is_exhausted(epoch) and expected_epoch in (NO_EPOCH, epoch):
        last_epoch = epoch if expected_epoch != NO_EPOCH else NO_EPOCH
        producer_id, epoch = allocate(), 0
    elif expected_epoch == NO_EPOCH:
        epoch += 1
    elif expected_epoch == epoch or epoch == NO_EPOCH:
        epoch, last_epoch = epoch + 1, epoch
    elif expected_epoch == txn.last_producer_epoch:
        last_epoch = txn.last_producer_epoch  # A retry whose first answer was lost: same answer again.
    else:
        return refuse(errors.PRODUCER_FENCED)
    return Decision(
        record=txn._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            previous_producer_id=txn.producer_id,
            next_producer_id=NO_ID,
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            updated_ms=now_ms,
        )
    )


def is_expected_producer(txn: Txn, producer_id: int, epoch: int) -> bool:
    return (
        producer_id in (NO_ID, txn.producer_id)
        or (txn.state in PREPARED and producer_id == txn.next_producer_id)
        or txn.producer_epoch == NO_EPOCH
        # The id was rotated because its epochs ran out, and the producer did not get to hear of it.
        or (producer_id == txn.previous_producer_id and is_exhausted(epoch))
    )


def decide_fence(txn: Txn, server_version: int, now_ms: int, allocate: Callable[[], int]) -> Decision:
    """Abort an open transaction from the server's side (a new producer, or its timeout) and fence its owner."""
    assert txn.state is ONGOING, f"{txn.transactional_id} is {txn.state.kafka_name}, only Ongoing can be fenced"
    if server_version >= 2:
        return Decision(record=_prepare_and_bump(txn, PREPARE_ABORT, now_ms, allocate))
    epoch = min(txn.producer_epoch + 1, MAX_EPOCH)
    return Decision(
        record=txn._replace(
            state=PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=NO_EPOCH,
            previous_producer_id=txn.producer_id,
            updated_ms=now_ms,
            client_transaction_version=0,
        )
    )


# --- AddPartitionsToTxn, AddOffsetsToTxn, and the implicit add of Produce v12 ------------------------------


def decide_add(
    txn: Txn | None, producer_id: int, epoch: int, partitions: Set[TopicPartition], client_version: int, now_ms: int
) -> Decision:
    error = _check_owner(txn, producer_id, epoch)
    if error or txn is None:
        return refuse(error)
    if txn.state in PREPARED:
        return refuse(errors.CONCURRENT_TRANSACTIONS)
    if txn.state is ONGOING:
        if partitions <= txn.partitions:
            return OK
        return Decision(
            record=txn._replace(
                partitions=txn.partitions | partitions,
                previous_producer_id=producer_id,
                updated_ms=now_ms,
                client_transaction_version=client_version,
            )
        )
    return Decision(errors.NONE, _moved(txn, ONGOING, frozenset(partitions), now_ms, now_ms, client_version))


def verify_partition(txn: Txn | None, producer_id: int, epoch: int, partition: TopicPartition) -> int:
    """Is this partition part of the producer's open transaction? (KIP-890: no write without a marker to come.)"""
    error = _check_owner(txn, producer_id, epoch)
    if error or txn is None:
        return error
    if txn.state in PREPARED:
        return errors.CONCURRENT_TRANSACTIONS
    is_member = txn.state is ONGOING and partition in txn.partitions
    return errors.NONE if is_member else errors.TRANSACTION_ABORTABLE


def _is_next(txn: Txn, producer_id: int, epoch: int) -> bool:
    """Whether this is who EndTxn has told its client to be next, while the markers are on their way."""
    return txn.state in PREPARED and identity_after(txn) == (producer_id, epoch)


def _check_owner(txn: Txn | None, producer_id: int, epoch: int) -> int:
    if txn is None:
        return errors.INVALID_PRODUCER_ID_MAPPING
    if _is_next(txn, producer_id, epoch):
        return errors.NONE  # What EndTxn has handed out is the owner's already, though it has to wait for the markers.
    if txn.producer_id != producer_id:
        return errors.INVALID_PRODUCER_ID_MAPPING
    return errors.NONE if txn.producer_epoch == epoch else errors.PRODUCER_FENCED


# --- EndTxn -----------------------------------------------------------------------------------------------


def decide_end(txn: Txn | None, producer_id: int, epoch: int, commit: bool, now_ms: int) -> Decision:
    """EndTxn v0-4 (TV0 and TV1): the epoch stays as it is."""
    error = _check_owner(txn, producer_id, epoch)
    if error or txn is None:
        return refuse(error)
    prepare, complete = (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
    if txn.state is ONGOING:
        return Decision(errors.NONE, _moved(txn, prepare, txn.partitions, txn.start_ms, now_ms, 0))
    if txn.state is complete:
        return OK  # A retry of a request whose answer was lost.
    if txn.state is prepare:
        return refuse(errors.CONCURRENT_TRANSACTIONS)
    return refuse(errors.INVALID_TXN_STATE)


def decide_end_and_bump(
    txn: Txn | None, producer_id: int, epoch: int, commit: bool, now_ms: int, allocate: Callable[[], int]
) -> Decision:
    """EndTxn v5 (TV2): each transaction has an epoch of its own, so a late request can be told from a retry."""
    if txn is None:
        return refuse(errors.INVALID_PRODUCER_ID_MAPPING)
    if _is_next(txn, producer_id, epoch):
        return refuse(errors.CONCURRENT_TRANSACTIONS)  # The next transaction, of which nothing can be said yet.
    # The answer to the last EndTxn of an exhausted id was lost, and the id has been replaced meanwhile.
    is_overflow_retry = (
        producer_id == txn.previous_producer_id
        and producer_id != txn.producer_id
        and epoch == EXHAUSTED_EPOCH
        and txn.producer_epoch == 0
        and txn.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    )
    if producer_id != txn.producer_id and not is_overflow_retry:
        return refuse(errors.INVALID_PRODUCER_ID_MAPPING)
    is_current = producer_id == txn.producer_id and epoch == txn.producer_epoch
    is_retry = is_overflow_retry or (producer_id == txn.producer_id and epoch == txn.producer_epoch - 1)
    if txn.state in (EMPTY, ONGOING):
        if not is_current:
            return refuse(errors.PRODUCER_FENCED)
        if txn.state is EMPTY and commit:
            return refuse(errors.INVALID_TXN_STATE)
    elif txn.state in PREPARED:
        if not is_retry:
            return refuse(errors.PRODUCER_FENCED)
        is_same = commit is (txn.state is PREPARE_COMMIT)
        return refuse(errors.CONCURRENT_TRANSACTIONS if is_same else errors.INVALID_TXN_STATE)
    else:
        if is_retry:
            if commit is not (txn.state is COMPLETE_COMMIT):
                return refuse(errors.INVALID_TXN_STATE)
            # Differs: Kafka takes it for a retry also where the last transaction was of version 1. Then the epoch is
            # one that a new producer took, and the fenced one before it would be told it, and go on.
            is_bumped = txn.client_transaction_version >= 2 or is_overflow_retry
            return OK if is_bumped else refuse(errors.PRODUCER_FENCED)
        if not is_current:
            return refuse(errors.PRODUCER_FENCED)
        if commit:
            return refuse(errors.INVALID_TXN_STATE)
    prepare = PREPARE_COMMIT if commit else PREPARE_ABORT
    return Decision(record=_prepare_and_bump(txn, prepare, now_ms, allocate))


def _prepare_and_bump(txn: Txn, prepare: State, now_ms: int, allocate: Callable[[], int]) -> Txn:
    # Kafka: an older coordinator may have left the very last epoch behind; it is aborted without a further bump.
    epoch = min(txn.producer_epoch + 1, MAX_EPOCH)
    next_producer_id = allocate() if is_exhausted(txn.producer_epoch) else NO_ID
    return txn._replace(
        state=prepare,
        producer_epoch=epoch,
        last_producer_epoch=txn.producer_epoch,
        previous_producer_id=txn.producer_id,
        next_producer_id=next_producer_id,
        # An abort with nothing to abort still passes through Prepare, so it needs a beginning.
        start_ms=now_ms if txn.state is not ONGOING else txn.start_ms,
        updated_ms=now_ms,
        client_transaction_version=2,
    )


# --- after the markers, and the end of an id ---------------------------------------------------------------


def complete(txn: Txn, now_ms: int) -> Txn:
    """All markers are written: the record that ends the transaction."""
    assert txn.state in PREPARED, f"{txn.transactional_id} is {txn.state.kafka_name}, nothing to complete"
    state = COMPLETE_COMMIT if txn.state is PREPARE_COMMIT else COMPLETE_ABORT
    done = _moved(txn, state, NO_PARTITIONS, txn.start_ms, now_ms, txn.client_transaction_version)
    if txn.next_producer_id != NO_ID:
        done = done._replace(producer_id=txn.next_producer_id, producer_epoch=0, next_producer_id=NO_ID)
    return done


def will_end(txn: Txn, epoch: int) -> bool:
    """Whether what a partition has open under this epoch is of the unfinished `txn`, whose markers will end it.

    Otherwise it is of the next one, which began under the epoch that version 2 gave it.
    """
    bumped = txn.state in PREPARED and txn.client_transaction_version >= 2 and txn.producer_epoch < MAX_EPOCH
    return epoch < txn.producer_epoch if bumped else epoch <= txn.producer_epoch


def identity_after(prepared: Txn) -> tuple[int, int]:
    """The producer id and epoch that a TV2 client uses next, once `prepared` is decided."""
    if prepared.next_producer_id != NO_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def is_timed_out(txn: Txn, now_ms: int) -> bool:
    return txn.state is ONGOING and txn.start_ms + txn.timeout_ms < now_ms


def is_expired(txn: Txn, expiration_ms: int, now_ms: int) -> bool:
    return txn.state in IDLE and txn.updated_ms <= now_ms - expiration_ms


def apply(txns: dict[str, Txn], record: Txn) -> None:
    """Take one record into the state; live traffic and recovery both end here. `Dead` is a tombstone."""
    before = txns.get(record.transactional_id)
    if before is not None and record.state not in LEGAL[before.state]:
        raise IllegalMove(
            f"{record.transactional_id}: {before.state.kafka_name} -> {record.state.kafka_name} is not a legal move"
        )
    if record.state is DEAD:
        txns.pop(record.transactional_id, None)
    else:
        txns[record.transactional_id] = record
