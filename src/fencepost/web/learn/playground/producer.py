"""A producer that sends each request once, without the retries of a real client, and keeps request and answer.

A real client hides most errors behind retries. Here each is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fencepost.client.client import COORDINATOR_MOVED, GROUP, TRANSACTION, KafkaClient
from fencepost.client.connection import BrokerConnection
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol import errors
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
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion
from fencepost.web.learn.playground.guide import ProducerSteps
from fencepost.web.learn.playground.messages import batch, error_in, plain

REQUEST_TIMEOUT_MS = 2000
# The longest that a broker allows by default: a transaction must not end while its user reads.
TIMEOUT_MS = 900_000
ONE_DAY_MS = 86_400_000
UNKNOWN_PARTITION = 99
UNKNOWN_TOPIC_ID = b"\x07" * 16
WRONG_ACKS = 5
LONG_METADATA = "x" * 5000
LEADER_MOVED = frozenset({errors.NOT_LEADER_OR_FOLLOWER, errors.LEADER_NOT_AVAILABLE, errors.UNKNOWN_TOPIC_ID})
# The highest versions that an older client (TV1) and a newer one (TV2) send.
PRODUCE = {TV1: 11, TV2: 12}
PRODUCE_BY_TOPIC_ID = 13
END = {TV1: 4, TV2: 5}
COMMIT_OFFSETS = {TV1: 4, TV2: 5}
ADD_PARTITIONS_OF_CLIENTS = 3


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request, and the answer or why there is none."""

    sender: str
    api: str
    version: int | None
    to: str | None
    request: dict[str, Any]
    answer: dict[str, Any] | None
    error_code: int
    problem: str | None
    took_ms: float

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "error": errors.name_of(self.error_code)}


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """A consumer in the group, as TxnOffsetCommit names it."""

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


def api_of(request: Message) -> str:
    return request.definition.name.removesuffix("Request")


def exchange(
    sender: str, client: KafkaClient, find: Callable[[], BrokerConnection], request: Message, at_most: int | None = None
) -> SentRequest:
    """Send a request once. No answer counts as NETWORK_EXCEPTION, as clients say it."""
    began = time.perf_counter()
    version = to = None
    answer: dict[str, Any] | None = None
    code, problem = errors.NONE, None
    try:
        connection = find()
        to = connection.address
        version = connection.session.version_for(type(request), at_most)
        answer = plain(client.send(connection, request, at_most), version)
        code = error_in(answer)
    except BrokerError as e:
        code, problem = e.code, str(e)
    except ClientError as e:
        code, problem = errors.NETWORK_EXCEPTION, str(e).partition("\n\n")[0]
    took_ms = (time.perf_counter() - began) * 1000
    shown = plain(request, version if version is not None else request.definition.versions.stop - 1)
    return SentRequest(sender, api_of(request), version, to, shown, answer, code, problem, round(took_ms, 1))


class SingleProducer:
    """The owner of a transactional id, or a second producer that wants the same id."""

    def __init__(self, name: str, bootstrap_servers: str, transactional_id: str) -> None:
        self.name = name
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": f"producer-{name}",
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
        }
        self._client = KafkaClient(settings)
        self.identity = ProducerIdentity(transactional_id, -1, -1)
        self.version: TransactionVersion = TV2
        self.is_in_txn = False
        self._may_have_written = False
        self._written = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        self._client.close()

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "client": "TV2" if self.version is TV2 else "TV1",
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.producer_epoch,
            "is_registered": self.is_registered,
            "is_in_txn": self.is_in_txn,
        }

    @property
    def is_registered(self) -> bool:
        return self.identity.producer_id >= 0

    @property
    def steps(self) -> ProducerSteps:
        return ProducerSteps(self.name, self.is_registered, self.is_in_txn, self._may_have_written)

    def change_version(self, version: TransactionVersion) -> list[SentRequest]:
        self.version = version
        return []

    # --- requests -----------------------------------------------------------------------------------------

    def register(self, mistake: str = "") -> list[SentRequest]:
        id_ = self.identity.transactional_id
        named = {"empty-id": "", "no-id": None}.get(mistake, id_)
        timeout_ms = ONE_DAY_MS if mistake == "timeout-too-long" else TIMEOUT_MS
        sent = self._ask_coordinator(InitProducerIdRequest(named, timeout_ms, -1, -1), 5)
        if not sent.error_code and sent.answer is not None and named == id_:
            self._take(sent.answer)
            self.is_in_txn = self._may_have_written = False
        return [sent]

    def begin(self) -> list[SentRequest]:
        self.is_in_txn = True
        return []

    def produce(self, where: TopicPartition, now_ms: int, mistake: str = "") -> list[SentRequest]:
        sent: list[SentRequest] = []
        if self.version is TV1 and mistake != "not-added" and where not in self._added:
            sent += self.add_partitions([where])
            if sent[-1].error_code:
                return sent
        topic, partition = where
        if mistake == "unknown-partition":
            partition = UNKNOWN_PARTITION
        if mistake == "internal-topic":
            topic = "__transaction_state"
        sequence = self._sequences.get(where, 0)
        self._written += 1
        records = batch(
            self.identity,
            sequence + (mistake == "skip-sequence"),
            f"{self.name}-{self._written}",
            f"record {self._written} of producer {self.name}, epoch {self.identity.producer_epoch}",
            now_ms,
            mistake,
        )
        data = ProduceRequest.TopicProduceData(
            topic, UNKNOWN_TOPIC_ID, [ProduceRequest.PartitionProduceData(partition, records)]
        )
        id_ = None if mistake == "without-id" else self.identity.transactional_id
        acks = WRONG_ACKS if mistake == "wrong-acks" else -1
        at_most = PRODUCE_BY_TOPIC_ID if mistake == "unknown-topic-id" else PRODUCE[self.version]
        last = self._send(
            lambda: self._client.leader(*where), ProduceRequest(id_, acks, REQUEST_TIMEOUT_MS, [data]), at_most
        )
        if last.error_code in LEADER_MOVED:
            self._forget_leader(where[0])
        self._note_written(last)
        if not last.error_code:
            self._sequences[where] = sequence + 1
        return [*sent, last]

    def add_partitions(self, partitions: list[TopicPartition]) -> list[SentRequest]:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.identity.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(t, p) for t, p in topics.items()],
        )
        sent = self._ask_coordinator(request, ADD_PARTITIONS_OF_CLIENTS)
        self._note_written(sent)
        if not sent.error_code:
            self._added.update(partitions)
        return [sent]

    def add_offsets(
        self, group_id: str, where: TopicPartition, member: GroupIdentity, metadata: str = ""
    ) -> list[SentRequest]:
        sent: list[SentRequest] = []
        if self.version is TV1:
            sent.append(self._ask_coordinator(AddOffsetsToTxnRequest(*self.identity, group_id), 3))
            self._note_written(sent[-1])
            if sent[-1].error_code:
                return sent
        topic, partition = where
        offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition, self._written, -1, metadata)
        request = TxnOffsetCommitRequest(
            self.identity.transactional_id,
            group_id,
            self.identity.producer_id,
            self.identity.producer_epoch,
            member.generation_id,
            member.member_id,
            member.instance_id,
            [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [offset])],
        )
        key = group_id or "an empty group id has no coordinator"
        sent.append(self._send(lambda: self._client.coordinator(key, GROUP), request, COMMIT_OFFSETS[self.version]))
        self._note_written(sent[-1])
        if sent[-1].error_code in COORDINATOR_MOVED:
            self._client.forget_coordinator(key, GROUP)
        return sent

    def end(self, commit: bool) -> list[SentRequest]:
        sent = self._ask_coordinator(EndTxnRequest(*self.identity, commit), END[self.version])
        if not sent.error_code and sent.answer is not None:
            self.is_in_txn = self._may_have_written = False
            self._added.clear()
            if self.version is TV2:
                self._take(sent.answer)
        return [sent]

    def _note_written(self, sent: SentRequest) -> None:
        """A request whose answer was lost may have been carried out."""
        self._may_have_written |= sent.error_code in (errors.NONE, errors.NETWORK_EXCEPTION)

    # --- sending ------------------------------------------------------------------------------------------

    def _take(self, answer: dict[str, Any]) -> None:
        """Use the producer id and epoch of the answer. A new epoch begins its sequences with 0."""
        self.identity = ProducerIdentity(
            self.identity.transactional_id, answer["producer_id"], answer["producer_epoch"]
        )
        self._sequences.clear()
        self._added.clear()

    def _ask_coordinator(self, request: Message, at_most: int) -> SentRequest:
        id_ = self.identity.transactional_id
        sent = self._send(lambda: self._client.coordinator(id_, TRANSACTION), request, at_most)
        if sent.error_code in COORDINATOR_MOVED:
            self._client.forget_coordinator(id_, TRANSACTION)
        return sent

    def _send(self, find: Callable[[], BrokerConnection], request: Message, at_most: int) -> SentRequest:
        return exchange(self.name, self._client, find, request, at_most)

    def _forget_leader(self, topic: str) -> None:
        """As clients do after such an error: ask for the leaders again."""
        try:
            self._client.topic(topic, fresh=True)
        except ClientError:
            return  # The next request asks again.
