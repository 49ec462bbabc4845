"""Transactional clients that continue while their broker is killed, and note the broker's answers in a ledger.

`TxnWriter` and `Copier` use confluent-kafka (TV1), which retries by itself while the broker is down. `Tv2Writer` speaks
the protocol itself, as no Python client has TV2: an epoch per transaction, partitions added by Produce. Each runs in
its own thread until `stop` is set. A client that gives up on a transaction is discarded, and the next one initialises
the same transactional id: that ends the transaction.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Container, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fencepost.client.client import TRANSACTION, KafkaClient, retry
from fencepost.client.failures import BrokerError, Unreachable
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import Message
from tests.crash.ledger import Entry, Ledger, Outcome, decode_value, key_of, source_payload
from tests.readers.reading import IMPATIENT, TIMEOUT_S, connect, seen_of
from tests.wire.raw_client import Closed, RawClient

COMMIT_PROBABILITY = 0.75
# librdkafka 2.16 removes the queued records of a transaction that it aborts. If a record comes back to the queue later,
# since its partition has another leader, abort_transaction waits for it in vain; the next try removes it.
ABORT_TRY_S = 3.0


class GaveUp(Exception):
    """The client cannot continue. Once the next client has initialised, its transaction has ended with `outcome`."""

    def __init__(self, entry: Entry, outcome: Outcome) -> None:
        super().__init__(f"{entry} will be {outcome.value}")
        self.entry = entry
        self.outcome = outcome


class Client(threading.Thread):
    """One writer of the ledger. `failure` is the traceback, if an error ended it."""

    def __init__(self, name: str, bootstrap_servers: str, ledger: Ledger, stop: threading.Event, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap_servers = bootstrap_servers
        self.ledger = ledger
        self.stop = stop
        self.rng = random.Random(f"{seed}/{name}")
        self.failure: str | None = None
        self.left_behind: GaveUp | None = None  # By an earlier process that was killed.

    def run(self) -> None:
        try:
            given_up = self.left_behind
            # A transaction that was given up must have ended before the last check, so one more client may be needed.
            while not self.stop.is_set() or given_up is not None:
                given_up = self.live(given_up)
        except BaseException:
            self.failure = traceback.format_exc()

    def live(self, given_up: GaveUp | None) -> GaveUp | None:
        """The life of one client object; `given_up` is the transaction that the one before gave up."""
        raise NotImplementedError

    def stack(self) -> str:
        """Its current stack, for a client that does not end."""
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "it has ended"

    def pause(self) -> None:
        if self.rng.random() < 0.2:
            time.sleep(self.rng.random() * 0.02)


class TxnWriter(Client):
    """Writes some records to each topic per transaction, and commits or aborts at random."""

    topics: Mapping[str, int]  # Partitions by topic.
    keyed: Container[str]  # Topics that are compacted, of one partition each.

    def __init__(
        self,
        *args: Any,
        topics: Mapping[str, int],
        keyed: Container[str] = (),
        more: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        super().__init__(*args)
        self.topics = topics
        self.keyed = keyed
        self.settings = IMPATIENT | {"bootstrap.servers": self.bootstrap_servers} | dict(more or {})  # Of librdkafka.

    def live(self, given_up: GaveUp | None) -> GaveUp | None:
        producer = self.new_producer()
        try:
            initialise(producer)
            if given_up is not None:
                given_up.entry.end(given_up.outcome)
            while not self.stop.is_set():
                self.pause()
                self.transact(producer)
        except GaveUp as leaving:
            producer.purge()
            return leaving
        return None

    def new_producer(self) -> Producer:
        return Producer(self.settings | {"transactional.id": self.name, "linger.ms": 0})

    def transact(self, producer: Producer) -> None:
        entry = self.ledger.open(self.name)
        commit = self.rng.random() < COMMIT_PROBABILITY
        try:
            producer.begin_transaction()
            for topic, partitions in self.topics.items():
                for _ in range(self.rng.choice([1, 1, 1, 2, 5])):
                    value, key = entry.write(topic), bytes(self.rng.randrange(200))
                    if topic in self.keyed:
                        key = key_of(decode_value(value)[0]).encode()
                    partition = self.rng.randrange(partitions)
                    producer.produce(topic, value.encode(), key=key, partition=partition)
                if self.rng.random() < 0.2:
                    producer.flush(self.rng.random())
            if not commit:
                producer.flush(0.5)  # Aborted records should reach the log.
        except KafkaException as e:
            self.abort(producer, entry, e.args[0])
            return
        if commit:
            self.commit(producer, entry)
        else:
            self.abort(producer, entry)

    def commit(self, producer: Producer, entry: Entry) -> None:
        entry.ask()
        while True:
            try:
                producer.commit_transaction(self.rng.choice([0.2, 1, TIMEOUT_S]))
            except KafkaException as e:
                error: KafkaError = e.args[0]
                if error.txn_requires_abort():
                    self.abort(producer, entry, error)
                    return
                if not error.retriable() or self.rng.random() < 0.5:
                    raise GaveUp(entry, Outcome.UNKNOWN) from e
            else:
                entry.end(Outcome.COMMITTED)
                return

    def abort(self, producer: Producer, entry: Entry, why: KafkaError | None = None) -> None:
        """Abort a transaction that the broker was not asked to commit, or refused to commit: the outcome is certain."""
        if why is not None and not why.txn_requires_abort():
            raise GaveUp(entry, Outcome.ABORTED)
        while True:
            try:
                producer.abort_transaction(ABORT_TRY_S)
            except KafkaException as e:
                if not e.args[0].retriable():
                    # The broker refused the commit and then fenced the producer: it is not committed and will not be.
                    raise GaveUp(entry, Outcome.ABORTED) from e
            else:
                entry.end(Outcome.ABORTED)
                return


class Copier(TxnWriter):
    """Consume, process, produce: one output for each input, and the group's offsets in the same transaction."""

    group_id = "copier"

    def __init__(self, *args: Any, source: str, target: str, **options: Any) -> None:
        super().__init__(*args, topics={}, **options)
        self.source = source
        self.target = target

    def live(self, given_up: GaveUp | None) -> GaveUp | None:
        consumer = Consumer(
            self.settings
            | {
                "group.id": self.group_id,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6000,  # For this long, a killed client delays the others.
            }
        )
        producer = self.new_producer()
        try:
            initialise(producer)
            if given_up is not None:
                given_up.entry.end(given_up.outcome)
            consumer.subscribe([self.source])
            while not self.stop.is_set():
                self.copy(consumer, producer)
        except GaveUp as leaving:
            producer.purge()
            return leaving
        finally:
            consumer.close()
        return None

    def copy(self, consumer: Consumer, producer: Producer) -> None:
        messages = [m for m in consumer.consume(self.rng.choice([1, 10, 100]), 0.1) if m.error() is None]
        if not messages:
            return
        entry = self.ledger.open(self.name)
        offsets = {}
        try:
            producer.begin_transaction()
            for message in messages:
                record = seen_of(message)
                value = entry.write(self.target, source_payload(record))
                producer.produce(self.target, value.encode(), partition=record.partition)
                offsets[record.partition] = record.offset + 1
            positions = [TopicPartition(self.source, partition, offset) for partition, offset in offsets.items()]
            self.send_offsets(consumer, producer, positions)
        except KafkaException as e:
            self.abort(producer, entry, e.args[0])
        else:
            if self.rng.random() < COMMIT_PROBABILITY:
                self.commit(producer, entry)
            else:
                self.abort(producer, entry)
        if entry.outcome is not Outcome.COMMITTED:
            rewind(consumer)

    def send_offsets(self, consumer: Consumer, producer: Producer, positions: list[TopicPartition]) -> None:
        while True:
            try:
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            except KafkaException as e:
                if not e.args[0].retriable():
                    raise
            else:
                return


def initialise(producer: Producer) -> None:
    while True:
        try:
            producer.init_transactions(TIMEOUT_S)
        except KafkaException as e:
            if not e.args[0].retriable():
                raise
        else:
            return


def rewind(consumer: Consumer) -> None:
    """Go back to the committed offsets of the group: later records are read again."""
    while assigned := consumer.assignment():
        try:
            for partition in consumer.committed(assigned, TIMEOUT_S):
                if partition.offset < 0:
                    partition.offset = OFFSET_BEGINNING
                consumer.seek(partition)
        except KafkaException as e:
            # A rebalance revoked the partition, or the broker is down.
            if e.args[0].code() == KafkaError._STATE:
                return
        else:
            return


class Tv2Writer(TxnWriter):
    """Its own client, with TV2. It never gives up only because the broker does not answer."""

    def live(self, given_up: GaveUp | None) -> GaveUp | None:
        client = self.new_client()
        try:
            client.init()
            if given_up is not None:
                given_up.entry.end(given_up.outcome)
            while not self.stop.is_set():
                self.pause()
                self.transact_tv2(client)
        except GaveUp as leaving:
            return leaving
        finally:
            client.close()
        return None

    def new_client(self) -> Tv2Client:
        return Tv2Client(self.bootstrap_servers, self.name)

    def transact_tv2(self, client: Tv2Client) -> None:
        entry = self.ledger.open(self.name)
        for _ in range(self.rng.choice([1, 2, 3])):
            batches: dict[tuple[str, int], list[str]] = {}
            for topic, partitions in self.topics.items():
                values = [entry.write(topic) for _ in range(self.rng.choice([1, 3]))]
                batches[topic, self.rng.randrange(partitions)] = values
            if client.produce(batches) != errors.NONE:
                raise GaveUp(entry, Outcome.ABORTED)
        commit = self.rng.random() < COMMIT_PROBABILITY
        if commit:
            entry.ask()
        outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        if client.end(commit) == errors.NONE:
            entry.end(outcome)
        else:
            raise GaveUp(entry, Outcome.UNKNOWN if commit else Outcome.ABORTED)


class RoutedTv2Writer(Tv2Writer):
    """A `Tv2Writer` for several nodes."""

    def new_client(self) -> Tv2Client:
        return RoutedTv2Client(self.bootstrap_servers, self.name)


class Tv2Client:
    """One transactional id. It reconnects, and sends a request again, until the request is answered."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._connection: RawClient | None = None
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def moved_to(self, bootstrap_servers: str) -> Tv2Client:
        """The same producer in the same transaction, at another address."""
        moved = Tv2Client(bootstrap_servers, self.transactional_id)
        moved._begin(self.producer_id, self.producer_epoch)
        moved._sequences |= self._sequences
        return moved

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, request: Message, version: int) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if self._connection is None:
                    self._connection = connect(self._bootstrap_servers)
                return self._connection.call(request, version)
            except (Closed, OSError):
                self.close()
                assert time.monotonic() < deadline, "the broker does not come back"
                time.sleep(0.02)

    def call_while_concurrent(self, request: Message, version: int, codes: Callable[[Any], set[int]]) -> Any:
        """Repeat the request while the markers of the last transaction are not written yet."""
        deadline = time.monotonic() + TIMEOUT_S
        while errors.CONCURRENT_TRANSACTIONS in codes(reply := self.call(request, version)):
            assert time.monotonic() < deadline, f"{self.transactional_id}: the last transaction never ends"
            time.sleep(0.01)
        return reply

    def init(self) -> None:
        request = InitProducerIdRequest(self.transactional_id, 60_000)
        reply = self.call_while_concurrent(request, 5, lambda reply: {reply.error_code})
        assert reply.error_code == errors.NONE, f"InitProducerId: error {reply.error_code}"
        self._begin(reply.producer_id, reply.producer_epoch)

    def _begin(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._sequences.clear()

    def produce(self, batches: Mapping[tuple[str, int], list[str]]) -> int:
        """Send one batch to each partition; return an error code, if there is one."""
        topics: dict[str, list[Any]] = {}
        for (topic, partition), values in batches.items():
            sequence = self._sequences.get((topic, partition), 0)
            self._sequences[topic, partition] = sequence + len(values)
            batch = encode_batch(
                [(None, value.encode()) for value in values],
                time.time_ns() // 1_000_000,
                self.producer_id,
                self.producer_epoch,
                sequence,
                transactional=True,
            )
            topics.setdefault(topic, []).append(ProduceRequest.PartitionProduceData(partition, batch))
        data = [ProduceRequest.TopicProduceData(name=topic, partition_data=parts) for topic, parts in topics.items()]
        return self._send(data)

    def _send(self, data: list[Any]) -> int:
        """Send the batches of some topics; return an error code, if there is one."""
        request = ProduceRequest(self.transactional_id, -1, 30_000, data)
        reply = self.call_while_concurrent(request, 12, _produce_codes)
        return next(iter(_produce_codes(reply) - {errors.NONE}), errors.NONE)

    def send_offset(self, group_id: str, topic: str, partition: int, offset: int) -> int:
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition, offset, -1, "")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [part])],
        )
        reply = self.call(request, version=5)
        return int(reply.topics[0].partitions[0].error_code)

    def end(self, commit: bool) -> int:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, commit)
        reply = self.call_while_concurrent(request, 5, lambda reply: {reply.error_code})
        if reply.error_code == errors.NONE:
            self._begin(reply.producer_id, reply.producer_epoch)
        return int(reply.error_code)


class RoutedTv2Client(Tv2Client):
    """A `Tv2Client` that finds the leaders and the coordinator, and finds them again when they move."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        super().__init__(bootstrap_servers, transactional_id)
        # A paused node answers nothing.
        settings = {"request.timeout.ms": 1000, "socket.connection.setup.timeout.ms": 1000}
        self._cluster = KafkaClient({"bootstrap.servers": bootstrap_servers, **settings})

    def close(self) -> None:
        self._cluster.close()

    def call(self, request: Message, version: int) -> Any:
        """Ask the coordinator."""
        return self._cluster.ask_coordinator(
            self.transactional_id, TRANSACTION, request, lambda reply: int(reply.error_code), at_most=version
        )

    def _send(self, data: list[Any]) -> int:
        for topic in data:
            for batch in topic.partition_data:
                if error := self._send_batch(topic.name, batch):
                    return error
        return errors.NONE

    def _send_batch(self, topic: str, batch: Any) -> int:
        data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[batch])]
        request = ProduceRequest(self.transactional_id, -1, 30_000, data)

        def attempt() -> int:
            try:
                reply = self._cluster.send(self._cluster.leader(topic, batch.index), request, at_most=12)
            except Unreachable:
                self._cluster.topic(topic, fresh=True)
                raise
            (code,) = _produce_codes(reply)
            refusal = BrokerError(code, f"{topic}-{batch.index}")
            if refusal.is_retriable or code == errors.CONCURRENT_TRANSACTIONS:
                self._cluster.topic(topic, fresh=True)
                raise refusal
            return code

        return retry(attempt, TIMEOUT_S, frozenset({errors.CONCURRENT_TRANSACTIONS}))


def _produce_codes(reply: Any) -> set[int]:
    return {partition.error_code for topic in reply.responses for partition in topic.partition_responses}
