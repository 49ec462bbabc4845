"""The states of one transactional id, the table of legal moves between them, and the record that carries them.

`Txn` is everything that the coordinator knows of one id, and the value of one record in `__transaction_state`.
`apply` is the only function that changes the state, live and when the log is loaded. `decisions.py` decides which
record comes next. Follows TransactionState and TransactionMetadata of Apache Kafka 4.x.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import IntEnum
from typing import NamedTuple

from fencepost.protocol.batch import MAX_PRODUCER_EPOCH
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV0, TransactionVersion

EXHAUSTED_EPOCH = MAX_PRODUCER_EPOCH - 1  # Clients never get the last epoch: the final abort needs it.
NO_ID = -1
NO_EPOCH = -1


class TxnState(IntEnum):
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


KAFKA_NAMES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TxnState}
BY_KAFKA_NAME = {name: state for state, name in KAFKA_NAMES.items()}

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = TxnState
IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})  # No transaction is open; an id in these states may expire.
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})  # The outcome is decided and only the markers are missing.
IDLE_MOVES = frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD})
LEGAL: Mapping[TxnState, Set[TxnState]] = {
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
    """A record would take a transactional id along a move that the table does not have."""

    def __init__(self, transactional_id: str, before: TxnState, after: TxnState) -> None:
        super().__init__(f"{transactional_id}: {before.kafka_name} -> {after.kafka_name} is not a legal move")


class Txn(NamedTuple):
    """Everything the coordinator knows of one transactional id; the value of one record."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    # The version of the client that wrote the transaction, or of the request that ended it. From TV2 on, markers have
    # an epoch of their own.
    client_transaction_version: TransactionVersion = TV0
    # Not in the record. After a restart a retry that relied on it is fenced, as in Kafka.
    last_producer_epoch: int = NO_EPOCH


def check_move(txns: Mapping[str, Txn], record: Txn) -> None:
    """Raise IllegalMove if the table does not allow the record as the next one of its transactional id."""
    before = txns.get(record.transactional_id)
    if before is not None and record.state not in LEGAL[before.state]:
        raise IllegalMove(record.transactional_id, before.state, record.state)


def apply(txns: dict[str, Txn], record: Txn) -> None:
    """Take one record into the state. Live traffic and loading both end here. `Dead` is a tombstone."""
    check_move(txns, record)
    if record.state is DEAD:
        txns.pop(record.transactional_id, None)
    else:
        txns[record.transactional_id] = record
