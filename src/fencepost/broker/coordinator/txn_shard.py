"""The transactional ids of one partition of `__transaction_state`, and how their records are written and loaded."""

from __future__ import annotations

from typing import Protocol

from fencepost.broker.coordinator.runtime import KeyAndValue, StateLog
from fencepost.broker.coordinator.txn_trace import Trace, events_of
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn import states
from fencepost.machines.txn.records import decode_key, decode_value, encode_key, encode_value, state_in_value
from fencepost.machines.txn.states import DEAD, LEGAL, IllegalMove, Txn, TxnState
from fencepost.protocol import errors
from fencepost.protocol.transaction_version import TransactionVersion


class Features(Protocol):
    """The finalized version decides the layout of a record; it may change at any time."""

    @property
    def transaction_version(self) -> TransactionVersion: ...


class TxnShard:
    __slots__ = ("_trace", "epoch", "is_closed", "log", "pending", "txns")

    def __init__(self, partition: Partition, features: Features, trace: Trace | None = None) -> None:
        self._trace = trace
        self.txns: dict[str, Txn] = {}
        self.is_closed = False  # Another node leads the partition.
        self.pending: set[str] = set()  # Ids that wait for a sync; until then they accept no other request.

        def encode(txn: Txn) -> KeyAndValue:
            value = None if txn.state is DEAD else encode_value(txn, features.transaction_version)
            return encode_key(txn.transactional_id), value

        self.log: StateLog[Txn] = StateLog(partition, self, encode, _decode)
        # The coordinator epoch. It never changes: when a node leads the partition again, it has a new shard.
        self.epoch = partition.leader_epochs.current

    def write(self, record: Txn, now_ms: int) -> int:
        """Append and apply the record of a decision; return NONE, or the error of an append that failed.

        An illegal move is found before the append: a record of one in the log would stop every later start.
        """
        states.check_move(self.txns, record)
        if self._trace is None:
            return self.log.write_one(record, now_ms)
        before = self.txns.get(record.transactional_id)
        error = self.log.write_one(record, now_ms)
        if error == errors.NONE:
            for event in events_of(before, record):
                self._trace(event)
        return error

    def apply(self, record: Txn, offset: int, producer_id: int | None) -> None:
        states.apply(self.txns, record)

    def apply_marker(self, producer_id: int, commit: bool) -> None:
        """No client can write to this topic in a transaction, so nothing is pending here."""

    def load(self) -> None:
        """Raises IllegalMove if the log takes an id along a move that the table does not have."""
        self.log.load(MoveCheck())


class MoveCheck:
    """Holds every record of a log against the table of legal moves, also those that loading does not decode.

    The cleaner deletes the oldest records of an id, never one between two that it keeps. So the records that are left
    follow one another as they were written.
    """

    def __init__(self) -> None:
        self._states: dict[bytes, TxnState] = {}

    def __call__(self, key: bytes, buf: bytes | None, value_at: int) -> None:
        after = None if buf is None else state_in_value(buf, value_at)
        if after is None:
            self._states.pop(key, None)
            return
        before = self._states.get(key)
        if before is not None and after not in LEGAL[before]:
            raise IllegalMove(decode_key(key) or repr(key), before, after)
        self._states[key] = after


def _decode(key: bytes, value: bytes, _offset: int) -> Txn | None:
    transactional_id = decode_key(key)
    return None if transactional_id is None else decode_value(transactional_id, value)
