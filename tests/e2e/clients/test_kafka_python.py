"""kafka-python against the broker: pure Python, TV1 with the newer versions of each request.

What all clients do with transactions is in test_transactions.py; here are its codecs, its group and its own example.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import (
    IsolationLevel,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from fencepost.testing import Broker
from tests.e2e.clients.scenarios import (
    CODECS,
    TEXTS,
    stored_batches,
)

Unique = Callable[[str], str]
TIMEOUT_S = 30.0
CODEC_LIBRARIES = {"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"}
# A broker that is killed here is back within a second.
RECONNECT = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}


@contextmanager
def producer_of(broker: Broker, **config: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **RECONNECT | config)
    try:
        yield producer
    finally:
        producer.close(timeout=5)


@contextmanager
def consumer_of(broker: Broker, *topics: str, **config: Any) -> Iterator[KafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "fetch_max_wait_ms": 20}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **RECONNECT | defaults | config)
    try:
        # A leader of a group that does not know a topic yet assigns nothing of it, and may not notice until its
        # metadata is five minutes old.
        for topic in topics:
            consumer.partitions_for_topic(topic)
        if topics:
            consumer.subscribe(topics)
        yield consumer
    finally:
        consumer.close()


@contextmanager
def admin_of(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


def create(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> str:
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    with admin_of(broker) as admin:
        admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": dotted}})
    return topic


def send(producer: KafkaProducer, topic: str, values: Sequence[str], **more: Any) -> None:
    """Produce and wait until the broker has taken every record."""
    for sent in [producer.send(topic, value.encode(), **more) for value in values]:
        sent.get(TIMEOUT_S)


def send_plain(broker: Broker, topic: str, values: Sequence[str]) -> None:
    with producer_of(broker) as producer:
        send(producer, topic, values)


def read_records(
    broker: Broker, topic: str, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
) -> list[Any]:
    """Everything that a reader of this isolation level can see now."""
    with consumer_of(broker, isolation_level=isolation_level) as consumer:
        partitions = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        records = []
        while any(consumer.position(where) < end for where, end in ends.items()):
            for got in consumer.poll(timeout_ms=1000).values():
                records += got
        return records


def read(broker: Broker, topic: str, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> list[str]:
    return [record.value.decode() for record in read_records(broker, topic, isolation_level)]


class Member(threading.Thread):
    """A consumer that is polled all the time, in a thread of its own.

    A poll that ends in the middle of a rebalance leaves it undone, so two consumers cannot take turns in one thread,
    and a poll is longer after one that was too short for it. kafka-python 3.0 forgets such a rebalance if it began
    because the topic's partitions were unknown before: the consumer keeps its old partitions and sends no heartbeats.
    Therefore the member asks for another one.
    """

    def __init__(self, broker: Broker, *topics: str, **config: Any) -> None:
        super().__init__()
        self.values: list[str] = []
        self.error: BaseException | None = None
        self._opened = consumer_of(broker, *topics, **config)
        self._is_leaving = threading.Event()

    def run(self) -> None:
        try:
            wait_ms = 200
            while not self._is_leaving.is_set():
                for records in self.consumer.poll(timeout_ms=wait_ms).values():
                    self.values.extend(record.value.decode() for record in records)
                coordinator = self.consumer._coordinator
                if coordinator.rejoining:
                    coordinator.request_rejoin()
                wait_ms = min(wait_ms * 2, 5000) if coordinator.need_rejoin() else 200
        except BaseException as error:
            self.error = error

    def assignment(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    def __enter__(self) -> Member:
        self.consumer = self._opened.__enter__()
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._is_leaving.set()
        self.join()
        self._opened.__exit__(*exception)


def until(is_done: Callable[[], bool], what: str, members: Sequence[Member] = ()) -> None:
    """Wait for something that the members do."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        for member in members:
            if member.error is not None:
                raise member.error
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.005)


# --- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_as_they_were_sent_in_every_codec(
    broker: Broker, broker_data: Path, unique: Unique, codec: str
) -> None:
    library = CODEC_LIBRARIES.get(codec)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"kafka-python needs the package {library} for {codec}")
    topic = unique(f"codec-{codec}")
    with producer_of(broker, compression_type=None if codec == "none" else codec, linger_ms=20) as producer:
        send(producer, topic, TEXTS)
    assert read(broker, topic) == TEXTS
    # The broker keeps a batch as it came.
    assert {header.attributes & 7 for header, _ in stored_batches(broker_data, topic)} == {CODECS.index(codec)}


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_partitions_move_as_consumers_come_and_go_and_each_record_is_read_once(
    broker: Broker, unique: Unique, assignor: type
) -> None:
    topic, group_id = create(broker, unique("moving"), partitions=6), unique("group")
    everything = {TopicPartition(topic, index) for index in range(6)}
    sent: list[str] = []

    def member() -> Member:
        return Member(broker, topic, group_id=group_id, partition_assignment_strategy=[assignor])

    def share(*members: Member) -> None:
        """Wait until they have all partitions between them, in equal parts."""

        def is_fair() -> bool:
            parts = [member.assignment() for member in members]
            size = len(everything) // len(members)
            return all(len(part) == size for part in parts) and set().union(*parts) == everything

        values = [str(len(sent) + number) for number in range(30)]
        sent.extend(values)
        send_plain(broker, topic, values)
        until(is_fair, f"{len(members)} consumers share {len(everything)} partitions", members)

    with member() as first:
        share(first)
        with member() as second:
            share(first, second)
        share(first)
        with member() as third:
            share(first, third)
            members = (first, second, third)
            until(lambda: sum(len(member.values) for member in members) >= len(sent), "all records came", members)
    assert sorted(first.values + second.values + third.values, key=int) == sent


# --- the client's own example -----------------------------------------------------------------------------


def test_the_clients_transactional_example_runs(broker: Broker, unique: Unique) -> None:
    """As the README of kafka-python shows it: one transaction committed, the next aborted."""
    topic = unique("txn_topic")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=unique("fizzbuzz"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, value=b"yes").get()
    producer.commit_transaction()

    producer.begin_transaction()
    producer.send(topic, value=b"no").get()
    producer.abort_transaction()
    producer.close()

    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level=IsolationLevel.READ_COMMITTED,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic])
    assert next(consumer).value == b"yes"
    consumer.close()
    assert read(broker, topic) == ["yes"]
