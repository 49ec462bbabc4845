"""A producer and a source made of this package's own client, with transaction version 1 or 2.

With either version each transaction has an epoch of its own: version 1 asks for it, version 2 gets it with the answer
to EndTxn. The source is the only reader of its group, which has no members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from fencepost.client.admin.offsets import OffsetToCommit, committed_offsets
from fencepost.client.admin.partitions import READ_COMMITTED
from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError, Fenced, Unreachable
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion
from fencepost.verify.history import Acked, Init
from fencepost.verify.workload.notes import Notes, now
from fencepost.verify.workload.producer import Abortable, Broken, InputPlace, key_of
from fencepost.verify.workload.reading import fetch_once

TXN_TIMEOUT_MS = 15_000
DEADLINE_S = 20.0
PRODUCE_TIMEOUT_MS = 10_000
# A client of the Java library treats these as the end of its producer.
FENCED = frozenset({errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH, errors.INVALID_PRODUCER_ID_MAPPING})
T = TypeVar("T")


class OwnProducer:
    def __init__(
        self, settings: Mapping[str, object], notes: Notes, transactional_id: str, version: TransactionVersion
    ) -> None:
        self.client = KafkaClient(settings)
        self._notes = notes
        self._transactional_id = transactional_id
        self._version = version
        self._transaction: Transaction | None = None
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()
        self._unsent: dict[tuple[str, int], list[str]] = {}

    @property
    def transaction(self) -> Transaction:
        assert self._transaction is not None, "init comes first"
        return self._transaction

    def init(self) -> None:
        def open_and_init() -> None:
            self._transaction = retry(self._open, DEADLINE_S)
            self._adopt(self._transaction.init())
            self._note_init()

        _called(open_and_init)

    def _open(self) -> Transaction:
        return Transaction(self.client, self._transactional_id, TXN_TIMEOUT_MS, is_verified=True, at_most=self._version)

    def _adopt(self, identity: ProducerIdentity) -> None:
        if identity == self._identity:
            return
        self._identity = identity
        self._sequences.clear()

    def _note_init(self) -> None:
        self._notes.note(Init(now(), self._notes.by, *self.transaction.identity, int(self.transaction.version)))

    def begin(self) -> None:
        self._added.clear()
        self._unsent.clear()
        self._adopt(_called(self.transaction.begin))
        if self.transaction.version is TV1:
            self._note_init()  # With version 2, the answer to EndTxn had the new epoch.

    def send(self, topic: str, partition: int, value: str) -> None:
        self._unsent.setdefault((topic, partition), []).append(value)

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        if new := unsent.keys() - self._added:
            _called(lambda: self.transaction.add_partitions(sorted(new), DEADLINE_S))
            self._added |= new
        for where, values in unsent.items():
            _called(lambda where=where, values=values: self._produce(where, values))  # type: ignore[misc]

    def _produce(self, where: tuple[str, int], values: list[str]) -> None:
        identity = self.transaction.identity
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + len(values)
        batch = encode_batch(
            [(key_of(value).encode(), value.encode()) for value in values],
            time.time_ns() // 1_000_000,
            identity.producer_id,
            identity.producer_epoch,
            sequence,
            transactional=True,
        )
        topic, partition = where
        data = ProduceRequest.TopicProduceData(
            name=topic, partition_data=[ProduceRequest.PartitionProduceData(partition, batch)]
        )
        request = ProduceRequest(identity.transactional_id, -1, PRODUCE_TIMEOUT_MS, [data])
        # From v12 on, a write adds its partition to the transaction.
        at_most = 12 if self.transaction.version is TV2 else 11

        def attempt() -> int:
            try:
                reply = self.client.send(self.client.leader(topic, partition), request, at_most)
            except Unreachable:
                self.client.topic(topic, fresh=True)
                raise
            found = reply.responses[0].partition_responses[0]
            if found.error_code == errors.DUPLICATE_SEQUENCE_NUMBER:
                return -1
            if found.error_code:
                self.client.topic(topic, fresh=True)
                raise BrokerError(found.error_code, f"{topic}-{partition}")
            return int(found.base_offset)

        base = retry(attempt, DEADLINE_S, frozenset({errors.CONCURRENT_TRANSACTIONS}))
        if base >= 0:
            for place, value in enumerate(values):
                self._notes.note(Acked(now(), self._notes.by, value, topic, partition, base + place))

    def commit(self) -> None:
        self.flush()
        _called(lambda: self.transaction.commit(DEADLINE_S))

    def abort(self) -> None:
        self._unsent.clear()
        _called(lambda: self.transaction.abort(DEADLINE_S))

    def close(self) -> None:
        self.client.close()


class OwnSource:
    def __init__(
        self, settings: Mapping[str, object], producer: OwnProducer, group_id: str, topic: str, partitions: int
    ) -> None:
        self.group_id = group_id
        self._producer = producer
        self._client = KafkaClient(settings)
        self._topic = topic
        self._partitions = partitions
        self._positions: dict[int, int] = {}
        self._turn = 0  # The partition that was read last.
        self.rewind()

    def rewind(self) -> None:
        wanted = [(self._topic, index) for index in range(self._partitions)]
        found = _called(lambda: committed_offsets(self._client, self.group_id, wanted))
        self._positions = {index: found.get((topic, index), (0, ""))[0] for topic, index in wanted}

    def poll(self, most: int) -> list[InputPlace]:
        for _ in self._positions:
            self._turn = (self._turn + 1) % self._partitions
            partition = self._turn
            found = fetch_once(self._client, self._topic, partition, self._positions[partition], READ_COMMITTED)
            inputs = [InputPlace(self._topic, partition, offset) for offset, _ in found.records[:most]]
            is_cut = len(inputs) < len(found.records)
            self._positions[partition] = inputs[-1].offset + 1 if is_cut else found.next_offset
            if inputs:
                return inputs
        return []

    def send_offsets(self, offsets: list[InputPlace]) -> None:
        self._producer.flush()
        wanted = [OffsetToCommit(*each) for each in offsets]
        _called(lambda: self._producer.transaction.commit_offsets(self.group_id, wanted))

    def close(self) -> None:
        self._client.close()


def _called(call: Callable[[], T]) -> T:
    try:
        return call()
    except Fenced as e:
        raise Broken(errors.name_of(e.code)) from None
    except BrokerError as e:
        raise (Broken if e.code in FENCED else Abortable)(errors.name_of(e.code)) from None
    except ClientError as e:
        raise Broken(type(e).__name__) from None
