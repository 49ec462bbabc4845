"""Kafka's rules for one transactional id, as pure decisions.

Every `decide_*` function reads a `Txn` and returns a `Decision`: an error, or the `Txn` to record next. No function
here changes anything. The coordinator appends the record, and `states.apply` takes it into the state.
Follows TransactionMetadata and TransactionCoordinator of Apache Kafka 4.x; KIP-98, KIP-360 (epoch bumps on request)
and KIP-890 (TV2: an epoch for every transaction).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from fencepost.machines.txn.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EXHAUSTED_EPOCH,
    IDLE,
    NO_EPOCH,
    NO_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Txn,
    TxnState,
)
from fencepost.protocol import errors
from fencepost.protocol.batch import MAX_PRODUCER_EPOCH
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV0, TV2, TransactionVersion


class Decision(NamedTuple):
    """An error for the client, or the record to append. Neither means: success, and nothing changes."""

    error: int = errors.NONE
    record: Txn | None = None


OK = Decision()
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def _moved(
    txn: Txn,
    state: TxnState,
    partitions: frozenset[TopicPartition],
    start_ms: int,
    now_ms: int,
    transaction_version: TransactionVersion,
) -> Txn:
    """The next record of a transaction whose producer stays the same.

    It is spelled out because `_replace` takes three times as long, and every transaction has three records.
    """
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
        transaction_version,
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
        last_epoch = txn.last_producer_epoch  # A retry whose first reply was lost gets the same reply again.
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
        # The producer id was replaced because its epochs ran out, and the reply that said so was lost.
        or (producer_id == txn.previous_producer_id and is_exhausted(epoch))
    )


def decide_fence(txn: Txn, finalized_version: TransactionVersion, now_ms: int, allocate: Callable[[], int]) -> Decision:
    """Abort an open transaction on behalf of the server (a new producer came, or it timed out) and fence its owner.

    `finalized_version` is the finalized `transaction.version` of the cluster.
    """
    assert txn.state is ONGOING, f"{txn.transactional_id} is {txn.state.kafka_name}, only Ongoing can be fenced"
    if finalized_version.bumps_epoch:
        return Decision(record=_prepare_and_bump(txn, PREPARE_ABORT, now_ms, allocate))
    epoch = min(txn.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    return Decision(
        record=txn._replace(
            state=PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=NO_EPOCH,
            previous_producer_id=txn.producer_id,
            updated_ms=now_ms,
            client_transaction_version=TV0,
        )
    )


# --- AddPartitionsToTxn, AddOffsetsToTxn, and the implicit add of Produce v12 ------------------------------


def decide_add(
    txn: Txn | None,
    producer_id: int,
    epoch: int,
    partitions: Set[TopicPartition],
    transaction_version: TransactionVersion,
    now_ms: int,
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
                client_transaction_version=transaction_version,
            )
        )
    return Decision(errors.NONE, _moved(txn, ONGOING, frozenset(partitions), now_ms, now_ms, transaction_version))


def verify_partition(txn: Txn | None, producer_id: int, epoch: int, partition: TopicPartition) -> int:
    """Check that the partition is part of the producer's open transaction, so that a marker will follow (KIP-890)."""
    error = _check_owner(txn, producer_id, epoch)
    if error or txn is None:
        return error
    if txn.state in PREPARED:
        return errors.CONCURRENT_TRANSACTIONS
    is_member = txn.state is ONGOING and partition in txn.partitions
    return errors.NONE if is_member else errors.TRANSACTION_ABORTABLE


def _is_next(txn: Txn, producer_id: int, epoch: int) -> bool:
    """Whether this is the producer id and epoch that EndTxn gave its client, while markers are still missing."""
    return txn.state in PREPARED and identity_after(txn) == (producer_id, epoch)


def _check_owner(txn: Txn | None, producer_id: int, epoch: int) -> int:
    if txn is None:
        return errors.INVALID_PRODUCER_ID_MAPPING
    if _is_next(txn, producer_id, epoch):
        return errors.NONE  # EndTxn has handed out this identity, so it is the owner's before the markers are written.
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
        return Decision(errors.NONE, _moved(txn, prepare, txn.partitions, txn.start_ms, now_ms, TV0))
    if txn.state is complete:
        return OK  # A retry of a request whose reply was lost.
    if txn.state in PREPARED:
        # Kafka: the markers are on their way, so even a request for the other outcome is told to come again.
        return refuse(errors.CONCURRENT_TRANSACTIONS)
    return refuse(errors.INVALID_TXN_STATE)


def decide_end_and_bump(
    txn: Txn | None, producer_id: int, epoch: int, commit: bool, now_ms: int, allocate: Callable[[], int]
) -> Decision:
    """EndTxn v5 (TV2): each transaction has an epoch of its own, so a late request differs from a retry."""
    if txn is None:
        return refuse(errors.INVALID_PRODUCER_ID_MAPPING)
    if _is_next(txn, producer_id, epoch):
        return refuse(errors.CONCURRENT_TRANSACTIONS)  # It ends the next transaction, which has to wait.
    # The reply to the last EndTxn of an exhausted producer id was lost, and the producer id was replaced meanwhile.
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
        return refuse(errors.CONCURRENT_TRANSACTIONS)
    else:
        if is_retry:
            if commit is not (txn.state is COMPLETE_COMMIT):
                return refuse(errors.INVALID_TXN_STATE)
            # Differs: Kafka takes an EndTxn v5 with the previous epoch for a retry, even if the last transaction was
            # TV0 or TV1. Then a new producer took the epoch, and the producer that it fenced would receive that epoch
            # and continue writing. Fencepost answers PRODUCER_FENCED.
            is_bumped = txn.client_transaction_version.bumps_epoch or is_overflow_retry
            return OK if is_bumped else refuse(errors.PRODUCER_FENCED)
        if not is_current:
            return refuse(errors.PRODUCER_FENCED)
        if commit:
            return refuse(errors.INVALID_TXN_STATE)
    prepare = PREPARE_COMMIT if commit else PREPARE_ABORT
    return Decision(record=_prepare_and_bump(txn, prepare, now_ms, allocate))


def _prepare_and_bump(txn: Txn, prepare: TxnState, now_ms: int, allocate: Callable[[], int]) -> Txn:
    # Kafka: an older coordinator may have left the last epoch behind; its transaction is aborted without another bump.
    epoch = min(txn.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    next_producer_id = allocate() if is_exhausted(txn.producer_epoch) else NO_ID
    return txn._replace(
        state=prepare,
        producer_epoch=epoch,
        last_producer_epoch=txn.producer_epoch,
        previous_producer_id=txn.producer_id,
        next_producer_id=next_producer_id,
        # An abort without an open transaction passes through PrepareAbort too, which needs a start time.
        start_ms=now_ms if txn.state is not ONGOING else txn.start_ms,
        updated_ms=now_ms,
        client_transaction_version=TV2,
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
    """Whether the markers of the unfinished `txn` will end the transaction that a partition has open in this epoch.

    If not, it is the next transaction, which began in the epoch that TV2 gave it.
    """
    bumped = (
        txn.state in PREPARED and txn.client_transaction_version.bumps_epoch and txn.producer_epoch < MAX_PRODUCER_EPOCH
    )
    return epoch < txn.producer_epoch if bumped else epoch <= txn.producer_epoch


def identity_after(prepared: Txn) -> tuple[int, int]:
    """The producer id and epoch that a TV2 client uses after `prepared`."""
    if prepared.next_producer_id != NO_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def is_timed_out(txn: Txn, now_ms: int) -> bool:
    return txn.state is ONGOING and txn.start_ms + txn.timeout_ms < now_ms


def is_expired(txn: Txn, expiration_ms: int, now_ms: int) -> bool:
    return txn.state in IDLE and txn.updated_ms <= now_ms - expiration_ms
