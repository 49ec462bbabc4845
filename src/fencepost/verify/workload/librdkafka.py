"""A producer and a source made of confluent-kafka, which is librdkafka: transaction version 1, and consumer groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fencepost.verify.history import CLIENT_PATIENCE_MS, Acked, Init
from fencepost.verify.workload.logins import take_tokens
from fencepost.verify.workload.notes import Notes, now
from fencepost.verify.workload.producer import Abortable, Broken, InputPlace, key_of

TXN_TIMEOUT_MS = 15_000
PATIENCE_S = 20.0
SETTINGS: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": CLIENT_PATIENCE_MS,
    # librdkafka forgets its only broker after a few refused connections, and then send_offsets_to_transaction may
    # wait for the forgotten one, past its timeout and for ever (librdkafka issues 5511 and 5456).
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
# librdkafka 2.16 removes the queued records of a transaction that it aborts. If a record comes back to the queue later,
# since its partition has another leader, abort_transaction waits for it in vain; the next try removes it.
ABORT_TRY_S = 3.0
FLUSH_S = 0.5
NAMES = {"_FENCED": "PRODUCER_FENCED", "_TIMED_OUT": "REQUEST_TIMED_OUT"}


class RdkafkaProducer:
    def __init__(self, settings: Mapping[str, Any], notes: Notes, transactional_id: str) -> None:
        self._notes = notes
        self._transactional_id = transactional_id
        own = {"transactional.id": transactional_id, "transaction.timeout.ms": TXN_TIMEOUT_MS, "linger.ms": 0}
        self.producer = Producer(SETTINGS | _for_librdkafka(settings) | own)

    def init(self) -> None:
        while True:
            try:
                self.producer.init_transactions(PATIENCE_S)
            except KafkaException as e:
                if not e.args[0].retriable():
                    raise Broken(name_of(e.args[0])) from None
            else:
                self._notes.note(Init(now(), self._notes.by, self._transactional_id))
                return

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> None:
        key = key_of(value).encode()
        self._call(lambda: self.producer.produce(topic, value.encode(), key, partition, on_delivery=self._delivered))

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            value, where = message.value().decode(), (message.topic(), message.partition(), message.offset())
            self._notes.note(Acked(now(), self._notes.by, value, *where))

    def flush(self) -> None:
        self._call(lambda: self.producer.flush(FLUSH_S))

    def commit(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                unmasked(lambda: self.producer.commit_transaction(PATIENCE_S))
            except KafkaException as e:
                error: KafkaError = e.args[0]
                if error.txn_requires_abort():
                    raise Abortable(name_of(error)) from None
                if not error.retriable() or time.monotonic() > deadline:
                    raise Broken(name_of(error)) from None
            else:
                return

    def abort(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                unmasked(lambda: self.producer.abort_transaction(ABORT_TRY_S))
            except KafkaException as e:
                if not e.args[0].retriable() or time.monotonic() > deadline:
                    raise Broken(name_of(e.args[0])) from None
            else:
                return

    def close(self) -> None:
        self.producer.purge()

    def _call(self, call: Callable[[], object]) -> None:
        try:
            unmasked(call)
        except KafkaException as e:
            raise failure_of(e.args[0]) from None
        except BufferError:
            self.producer.flush(FLUSH_S)


class RdkafkaSource:
    def __init__(self, settings: Mapping[str, Any], producer: RdkafkaProducer, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self._producer = producer.producer
        self._topic = topic
        own = {
            "group.id": group_id,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "heartbeat.interval.ms": 500,
            "session.timeout.ms": 6000,  # For this long, a killed client delays the others.
        }
        self._consumer = Consumer(SETTINGS | _for_librdkafka(settings) | own)
        self._consumer.subscribe([topic])

    def poll(self, most: int) -> list[InputPlace]:
        found: list[Any] = self._consumer.consume(most, 0.1)
        return [InputPlace(m.topic(), m.partition(), m.offset()) for m in found if m.error() is None]

    def send_offsets(self, offsets: list[InputPlace]) -> None:
        positions = [TopicPartition(*each) for each in offsets]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                who = self._consumer.consumer_group_metadata()
                unmasked(lambda: self._producer.send_offsets_to_transaction(positions, who, PATIENCE_S))  # noqa: B023
            except KafkaException as e:
                if not e.args[0].retriable() or time.monotonic() > deadline:
                    raise failure_of(e.args[0]) from None
            else:
                return

    def rewind(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (assigned := self._consumer.assignment()) and time.monotonic() < deadline:
            try:
                for partition in self._consumer.committed(assigned, PATIENCE_S):
                    if partition.offset < 0:
                        partition.offset = OFFSET_BEGINNING
                    self._consumer.seek(partition)
            except KafkaException as e:
                # A rebalance revoked the partition, or no coordinator answers.
                if e.args[0].code() == KafkaError._STATE:
                    return
            else:
                return

    def close(self) -> None:
        self._consumer.close()


def _for_librdkafka(settings: Mapping[str, Any]) -> dict[str, Any]:
    found, source = take_tokens(settings)
    if source is None:
        return found

    def new_token(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = source.token()
        return token.value, token.expires_at_s, "", dict(token.extensions)

    return found | {"oauth_cb": new_token}


def unmasked(call: Callable[[], object]) -> None:
    """Call, and raise a KafkaException as such.

    confluent-kafka raises a fatal error also between two callbacks, and Python turns it into a SystemError then.
    """
    try:
        call()
    except SystemError as e:
        if isinstance(e.__cause__, KafkaException):
            raise e.__cause__ from None
        raise


def failure_of(error: KafkaError) -> Abortable | Broken:
    return (Abortable if error.txn_requires_abort() else Broken)(name_of(error))


def name_of(error: KafkaError) -> str:
    """Kafka's name, where librdkafka has one of its own."""
    return NAMES.get(error.name(), error.name())
