"""Clients that write: transactional producers (TV1 and TV2), and one without transactions.

They behave as Apache Kafka's producer does (KIP-98, 360, 890).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV2, TransactionVersion
from fencepost.verify.history import TxnOutcome
from tests.simulation.clients import ABORTABLE, ErrorOf, Instance, MustAbort, Over, Role, Steps, error_code
from tests.simulation.history import Attempt


class Producer(Instance):
    """A transactional producer."""

    def __init__(self, role: Role, name: str, transaction_version: TransactionVersion) -> None:
        super().__init__(role, name)
        self.transaction_version = transaction_version
        self.transactional_id = role.name
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition | str] = set()
        self._is_in_doubt = False  # Whether a batch of this transaction may still reach the broker.

    def is_stale(self, txn: int) -> bool:
        # KAFKA-17754: on any broker, a late EndTxn of a TV1 client ends that client's next transaction, and a late
        # TxnOffsetCommit becomes part of it. This is a flaw of the protocol, so the simulation leaves it out.
        return self.transaction_version is not TV2 and txn != self.txn

    def init(self, producer_id: int = -1, epoch: int = -1) -> Steps:
        request = InitProducerIdRequest(self.transactional_id, self.world.txn_timeout_ms, producer_id, epoch)
        response, error, _ = yield from self.ask(request, 5 if self.transaction_version is TV2 else 4, error_code, 40)
        if error:
            raise Over(f"InitProducerId {errors.name_of(error)}")
        self._take_identity(response)

    def _take_identity(self, response: Any) -> None:
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._sequences = {}

    def begin(self) -> Attempt:
        self.txn += 1
        self._added = set()
        self._is_in_doubt = False
        return self.world.history.begin(self.name, self.txn)

    def produce(self, attempt: Attempt, where: TopicPartition, sources: Sequence[tuple[str, int, int] | None]) -> Steps:
        """One record for each source, which is the place of its input, if it has one."""
        values = [self.world.history.send(attempt, where, source) for source in sources]
        if self.transaction_version is not TV2 and where not in self._added:
            yield from self._add(where)
        self._added.add(where)
        sequence = self._sequences.get(where, 0)
        batch = encode_batch(
            [(None, value.encode()) for value in values],
            self.world.clock.now_ms,
            self.producer_id,
            self.epoch,
            sequence,
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(where[1], batch)
        request = ProduceRequest(
            self.transactional_id, -1, 1000, [ProduceRequest.TopicProduceData(where[0], partition_data=[data])]
        )
        yield from self._must(request, 12 if self.transaction_version is TV2 else 11, produce_error)
        self._sequences[where] = sequence + len(values)

    def _add(self, where: TopicPartition) -> Steps:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(where[0], [where[1]])
        request = AddPartitionsToTxnRequest((), self.transactional_id, self.producer_id, self.epoch, [topic])
        yield from self._must(request, 3, add_error)

    def _must(self, request: Message, version: int, error_of: ErrorOf) -> Steps:
        self._is_in_doubt = True
        response, error, _ = yield from self.ask(request, version, error_of, self.rng.randint(2, 12))
        if response is None or error in ABORTABLE:
            raise MustAbort
        if error:
            raise Over(f"{type(request).__name__} {errors.name_of(error)}")
        self._is_in_doubt = False

    def commit_offsets(
        self,
        attempt: Attempt,
        group: str,
        offsets: dict[TopicPartition, int],
        generation_id: int = -1,
        member_id: str = "",
    ) -> Steps:
        self.world.history.send_offsets(attempt, group, offsets)
        if self.transaction_version is not TV2:
            request: Message = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
            yield from self._must(request, 3, error_code)
        self._added.add(group)
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        topics: dict[str, list[Any]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(kind(index, offset, -1, ""))
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.producer_id,
            self.epoch,
            generation_id,
            member_id,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(*item) for item in topics.items()],
        )
        yield from self._must(request, 5 if self.transaction_version is TV2 else 3, offset_commit_error)

    def end(self, attempt: Attempt, commit: bool) -> Steps:
        history = self.world.history
        if not self._added and not self._is_in_doubt:
            history.end(attempt, TxnOutcome.ABORTED)
            return
        history.ask(attempt, commit)
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        response, error, was_doubted = yield from self.ask(
            request, 5 if self.transaction_version is TV2 else 4, error_code, 60
        )
        if response is None:
            raise Over("EndTxn was never answered")
        if error and commit and was_doubted:
            outcome = TxnOutcome.UNKNOWN  # An earlier request may have been carried out.
        else:
            outcome = TxnOutcome.COMMITTED if commit and not error else TxnOutcome.ABORTED
        history.end(attempt, outcome)
        self.world.note(self.name, "transaction %s is %s", attempt.txn, outcome)
        if error:
            raise Over(f"EndTxn {errors.name_of(error)}")
        if self.transaction_version is TV2:
            self._take_identity(response)
        elif self._is_in_doubt:
            # KIP-360: a batch that is still under way must not become part of the next transaction.
            yield from self.init(self.producer_id, self.epoch)


def produce_error(response: Any) -> int:
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def add_error(response: Any) -> int:
    code: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


def offset_commit_error(response: Any) -> int:
    codes: list[int] = [p.error_code for topic in response.topics for p in topic.partitions]
    return max(codes)


class Writer(Producer):
    """Writes transactions to several partitions and aborts some of them."""

    letter = "w"

    def __init__(
        self, role: Role, name: str, transaction_version: TransactionVersion, places: list[TopicPartition]
    ) -> None:
        super().__init__(role, name, transaction_version)
        self._places = places

    def steps(self) -> Steps:
        rng = self.rng
        yield from self.init()
        while not self.world.is_calm:
            yield rng.randint(1, 120)
            attempt = self.begin()
            commit = rng.random() < 0.75
            try:
                for _ in range(rng.randint(1, 4)):
                    yield from self.produce(attempt, rng.choice(self._places), [None] * rng.choice((1, 1, 1, 2, 4)))
                    if rng.random() < self.world.dawdling:
                        yield rng.randint(100, 2 * self.world.txn_timeout_ms)
            except MustAbort:
                commit = False
            yield from self.end(attempt, commit)


class PlainProducer(Instance):
    """An idempotent producer without transactions: its acknowledged records are stored once and in order."""

    letter = "i"

    def __init__(self, role: Role, name: str, place: TopicPartition) -> None:
        super().__init__(role, name)
        self._place = place

    def steps(self) -> Steps:
        response, error, _ = yield from self.ask(InitProducerIdRequest(None, 1000), 4, error_code, 40)
        if error:
            raise Over(errors.name_of(error))
        history = self.world.history
        sequence = 0
        while not self.world.is_calm:
            yield self.rng.randint(20, 200)
            value = f"{self.name}:{sequence}"
            history.send_plain(self.name, value, self._place)
            batch = encode_batch(
                [(None, value.encode())],
                self.world.clock.now_ms,
                response.producer_id,
                response.producer_epoch,
                sequence,
            )
            data = ProduceRequest.PartitionProduceData(self._place[1], batch)
            topic = ProduceRequest.TopicProduceData(self._place[0], partition_data=[data])
            _, error, _ = yield from self.ask(ProduceRequest(None, -1, 1000, [topic]), 11, produce_error, 60)
            if error:
                raise Over(errors.name_of(error))
            history.acknowledge(self.name, value, self._place)
            sequence += 1
