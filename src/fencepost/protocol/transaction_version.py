"""The one type for Kafka's feature `transaction.version`: how a client, a transaction or a server does transactions.

TV0 and TV1 differ in the layout of the state record only (TV1's is flexible). TV2 (KIP-890) gives every transaction
an epoch of its own and adds partitions with the first Produce. A request says for itself which version its client
has: EndTxn from v5 on, Produce from v12 on and TxnOffsetCommit from v5 on are TV2. So is AddPartitionsToTxn from v4 on,
which brokers send. Everything else counts as TV0.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionVersion(IntEnum):
    TV0 = 0
    TV1 = 1
    TV2 = 2

    @classmethod
    def of(cls, number: int) -> TransactionVersion:
        """The version with this number in a request or a record; what a later Kafka may add counts as TV2."""
        return cls(min(max(number, 0), 2))

    @property
    def bumps_epoch(self) -> bool:
        """Whether every transaction has an epoch of its own."""
        return self >= 2


TV0, TV1, TV2 = TransactionVersion
