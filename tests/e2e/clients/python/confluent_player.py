"""Plays the steps of players.py with confluent-kafka (librdkafka)."""

from __future__ import annotations

import sys
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.e2e.clients.confluent import RECONNECT
from tests.e2e.clients.python.playing import TIMEOUT_S, Mover, Player, Record, Sorter, ends_of, serve


class ConfluentPlayer(Player):
    def __init__(self, servers: str) -> None:
        super().__init__()
        self.common: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, **RECONNECT}

    def hello(self) -> dict[str, str]:
        librdkafka, _ = confluent_kafka.libversion()
        return {"client": "confluent-kafka", "version": f"{confluent_kafka.__version__} (librdkafka {librdkafka})"}

    def open(self, name: str, transactional_id: str = "", timeout_ms: int = 60_000) -> None:
        if not transactional_id:
            self.producers[name] = Producer(self.common)
            return
        config = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        self.producers[name] = Producer(self.common | config)
        self.producers[name].init_transactions(TIMEOUT_S)

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()

    def send(self, name: str, topic: str, partition: int, values: list[str]) -> None:
        send(self.producers[name], topic, [(partition, value.encode()) for value in values])

    def commit(self, name: str) -> None:
        self.producers[name].commit_transaction(TIMEOUT_S)

    def abort(self, name: str) -> None:
        self.producers[name].abort_transaction(TIMEOUT_S)

    def close(self, name: str) -> None:
        del self.producers[name]

    def read(self, topic: str, partitions: int, isolation: str, until: str) -> list[list[str]]:
        config = {"group.id": "reader", "isolation.level": isolation, "fetch.wait.max.ms": 20}
        consumer = Consumer(self.common | config)
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        found = Sorter(partitions, until)
        try:
            while found.wants_more():
                for record in take(consumer, 5000, 0.02):
                    found.add(record.partition, record.value)
        finally:
            consumer.close()
        return found.values

    def mover(self, name: str, **config: Any) -> None:
        self.open(name, config["transactional_id"])
        self.movers[name] = ConfluentMover(self.common, self.producers[name], **config)

    def name_of(self, error: BaseException) -> str:
        return error.args[0].name() if isinstance(error, KafkaException) else type(error).__name__


class ConfluentMover(Mover):
    def __init__(self, common: dict[str, Any], producer: Producer, **config: Any) -> None:
        self.source, self.target, self.producer = config["source"], config["target"], producer
        settings = {
            "group.id": config["group"],
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "session.timeout.ms": config["session_ms"],
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 20,
        }
        self.consumer = Consumer(common | settings)
        self.consumer.subscribe([self.source])

    def take(self, count: int, wait_s: float) -> list[Record]:
        return take(self.consumer, count, wait_s)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, records: list[Record]) -> None:
        send(self.producer, self.target, [(record.partition, record.value) for record in records])
        offsets = [TopicPartition(self.source, partition, offset) for partition, offset in ends_of(records).items()]
        self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), TIMEOUT_S)

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)
        for where in self.consumer.committed(self.consumer.assignment(), TIMEOUT_S):
            self.consumer.seek(TopicPartition(where.topic, where.partition, max(where.offset, 0)))


def send(producer: Producer, topic: str, records: list[tuple[int, bytes]]) -> None:
    """Produce and wait until the broker has taken every record."""
    outcomes: list[Any] = []

    def note(error: Any, _: Message) -> None:
        outcomes.append(error)

    for partition, value in records:
        producer.produce(topic, value, partition=partition, on_delivery=note)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    for error in outcomes:
        if error is not None:
            raise KafkaException(error)


def take(consumer: Consumer, count: int, wait_s: float) -> list[Record]:
    records = []
    message: Any
    for message in consumer.consume(count, wait_s):
        if message.error() is not None:
            raise KafkaException(message.error())
        records.append(Record(message.partition(), message.offset(), message.value()))
    return records


if __name__ == "__main__":
    serve(ConfluentPlayer(sys.argv[1]))
