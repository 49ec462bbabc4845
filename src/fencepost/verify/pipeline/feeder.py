"""Writes the inputs of a run: plain, in transactions that are committed, and in transactions that are aborted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.producing import produce
from fencepost.client.transaction import Transaction
from fencepost.protocol.batch import encode_batch
from fencepost.verify.history import Acked, Begin, End, Event, Init, Send, TxnEnded, TxnOutcome
from fencepost.verify.pipeline.plan import InputGroup, Writing

NAME = "feeder"
TXN_TIMEOUT_MS = 60_000


class Feeder:
    """`id_of` gives the id of an input by its number, `value_of` its value by its id. A record's key is its id."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        groups: Iterator[InputGroup],
        id_of: Callable[[int], str],
        value_of: Callable[[str], str],
        note: Callable[[Event], None],
    ) -> None:
        self._client, self._topic, self._groups, self._note = client, topic, groups, note
        self._partitions = len(client.topic(topic).leaders)
        self._id_of, self._value_of = id_of, value_of
        self._txn: Transaction | None = None
        self._txns = 0
        self.fed = 0
        self.due = 0  # Those that are not aborted on purpose.

    def feed(self) -> None:
        """Write the next group of inputs. Raises ClientError if the cluster takes no plain inputs any more."""
        group = next(self._groups)
        ids = [self._id_of(number) for number in group.numbers]
        self.fed += len(ids)
        self.due += len(ids) if group.written is not Writing.ABORTED else 0
        if group.written is Writing.PLAIN:
            self._produce(ids, None, None)
            return
        self._txns += 1
        txn = self._txns
        self._note(Begin(time.monotonic_ns(), NAME, txn))
        try:
            transaction = self._transaction()
            self._produce(ids, txn, transaction)
            commit = group.written is Writing.COMMITTED
            self._note(End(time.monotonic_ns(), NAME, txn, commit))
            transaction.commit() if commit else transaction.abort()
        except ClientError as e:
            # The inputs that are in the topic in the end show what became of them.
            self._txn = None
            self._note(TxnEnded(time.monotonic_ns(), NAME, txn, TxnOutcome.UNKNOWN, str(e)))
        else:
            outcome = TxnOutcome.COMMITTED if commit else TxnOutcome.ABORTED
            self._note(TxnEnded(time.monotonic_ns(), NAME, txn, outcome))

    def _transaction(self) -> Transaction:
        """Begun, with an epoch that no earlier transaction had: sequences count from 0."""
        if self._txn is None:
            id_ = f"fencepost-verify-{self._id_of(0)}"
            self._txn = Transaction(self._client, id_, TXN_TIMEOUT_MS, is_verified=True)
            identity = self._txn.init()
            version = int(self._txn.version)
            self._note(Init(time.monotonic_ns(), NAME, id_, identity.producer_id, identity.producer_epoch, version))
        self._txn.begin()
        return self._txn

    def _produce(self, ids: list[str], txn: int | None, transaction: Transaction | None) -> None:
        by_partition: dict[int, list[str]] = {}
        for n, id_ in enumerate(ids, self.fed):
            by_partition.setdefault(n % self._partitions, []).append(id_)
        if transaction is not None:
            transaction.add_partitions([(self._topic, partition) for partition in by_partition])
        for partition, some in by_partition.items():
            for id_ in some:
                self._note(Send(time.monotonic_ns(), NAME, txn, id_, self._topic, partition))
            base = self._write(partition, some, transaction)
            for n, id_ in enumerate(some):
                offset = base + n if base >= 0 else -1
                self._note(Acked(time.monotonic_ns(), NAME, id_, self._topic, partition, offset))

    def _write(self, partition: int, ids: list[str], transaction: Transaction | None) -> int:
        records = [(id_.encode(), self._value_of(id_).encode()) for id_ in ids]
        now_ms = time.time_ns() // 1_000_000
        if transaction is None:
            return produce(self._client, self._topic, partition, encode_batch(records, now_ms))
        identity = transaction.identity
        batch = encode_batch(records, now_ms, identity.producer_id, identity.producer_epoch, 0, transactional=True)
        return produce(self._client, self._topic, partition, batch, transaction.transactional_id, transaction.version)
