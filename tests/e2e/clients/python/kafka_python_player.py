"""Plays the steps of players.py with kafka-python."""

from __future__ import annotations

import logging
import sys
from typing import Any

import kafka
from kafka import IsolationLevel, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tests.e2e.clients.python.playing import TIMEOUT_S, Mover, Player, Record, Sorter, ends_of, serve

# A broker that is killed is back within a second.
RECONNECT = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}


class KafkaPythonPlayer(Player):
    def __init__(self, servers: str) -> None:
        super().__init__()
        self.common: dict[str, Any] = {"bootstrap_servers": servers, **RECONNECT}

    def hello(self) -> dict[str, str]:
        return {"client": "kafka-python", "version": kafka.__version__}

    def open(self, name: str, transactional_id: str = "", timeout_ms: int = 60_000) -> None:
        if not transactional_id:
            self.producers[name] = KafkaProducer(**self.common)
            return
        config = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        self.producers[name] = KafkaProducer(**self.common | config)
        self.producers[name].init_transactions()

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()

    def send(self, name: str, topic: str, partition: int, values: list[str]) -> None:
        send(self.producers[name], topic, [(partition, value.encode()) for value in values])

    def commit(self, name: str) -> None:
        self.producers[name].commit_transaction()

    def abort(self, name: str) -> None:
        self.producers[name].abort_transaction()

    def close(self, name: str) -> None:
        self.producers.pop(name).close(timeout=5)

    def read(self, topic: str, partitions: int, isolation: str, until: str) -> list[list[str]]:
        level = IsolationLevel[isolation.upper()]
        consumer = KafkaConsumer(**self.common, isolation_level=level, fetch_max_wait_ms=20)
        found = Sorter(partitions, until)
        try:
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            consumer.seek_to_beginning()
            while found.wants_more():
                for where, records in consumer.poll(timeout_ms=100).items():
                    for record in records:
                        found.add(where.partition, record.value)
        finally:
            consumer.close()
        return found.values

    def mover(self, name: str, **config: Any) -> None:
        self.open(name, config["transactional_id"])
        self.movers[name] = KafkaPythonMover(self.common, self.producers[name], **config)

    def name_of(self, error: BaseException) -> str:
        cause = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
        return type(cause).__name__


class KafkaPythonMover(Mover):
    def __init__(self, common: dict[str, Any], producer: KafkaProducer, **config: Any) -> None:
        self.source, self.target, self.producer = config["source"], config["target"], producer
        self.consumer = KafkaConsumer(
            **common,
            group_id=config["group"],
            auto_offset_reset="earliest",
            isolation_level=IsolationLevel.READ_COMMITTED,
            enable_auto_commit=False,
            session_timeout_ms=config["session_ms"],
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=20,
        )
        # A leader of a group that does not know a topic yet assigns nothing of it.
        self.consumer.partitions_for_topic(self.source)
        self.consumer.subscribe([self.source])
        self.wait_ms = 200

    def take(self, count: int, wait_s: float) -> list[Record]:
        found = self.consumer.poll(timeout_ms=self.wait_ms, max_records=count)
        # A poll that ends in the middle of a rebalance leaves it undone: the next one is longer.
        self.wait_ms = min(self.wait_ms * 2, 5000) if self.consumer._coordinator.need_rejoin() else 200
        return [Record(where.partition, record.offset, record.value) for where in found for record in found[where]]

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, records: list[Record]) -> None:
        send(self.producer, self.target, [(record.partition, record.value) for record in records])
        offsets = {
            TopicPartition(self.source, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in ends_of(records).items()
        }
        self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()
        for where in self.consumer.assignment():
            self.consumer.seek(where, self.consumer.committed(where) or 0)


def send(producer: KafkaProducer, topic: str, records: list[tuple[int, bytes]]) -> None:
    """Produce and wait until the broker has taken every record."""
    for sent in [producer.send(topic, value, partition=partition) for partition, value in records]:
        sent.get(TIMEOUT_S)


if __name__ == "__main__":
    logging.disable()
    serve(KafkaPythonPlayer(sys.argv[1]))
