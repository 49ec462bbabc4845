"""Spark's own Kafka source in front of the sink: its offsets are committed to the user's group with the micro-batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from fencepost.spark.sink import BatchTransaction
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker, Target
from tests.e2e.spark.streams import (
    Lines,
    MakeSink,
    create_topic,
    outcomes,
    run,
    stream,
    values,
    wait_for,
    written,
)

pytestmark = [pytest.mark.java]

Unique = Callable[[str], str]


class Orders:
    """A topic that fills up."""

    def __init__(self, servers: str, topic: str, partitions: int = 2) -> None:
        self.servers = servers
        self.topic = create_topic(servers, topic, partitions)
        self.partitions = partitions
        self.all: list[str] = []
        self.ends = dict.fromkeys(range(partitions), 0)
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 0})

    def add(self, count: int) -> list[str]:
        """Spread evenly over the partitions, so that their ends are known."""
        added = [f"{self.topic} {len(self.all) + n}" for n in range(count)]
        for n, value in enumerate(added, start=len(self.all)):
            self._producer.produce(self.topic, value, partition=n % self.partitions)
            self.ends[n % self.partitions] += 1
        assert self._producer.flush(30) == 0
        self.all += added
        return added

    def add_partition(self) -> None:
        self.ends[self.partitions] = 0
        self.partitions += 1
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        admin.create_partitions([NewPartitions(self.topic, self.partitions)])[self.topic].result(30)
        self._producer = self._new_producer()  # The old one learns of the partition only after minutes.

    def committed(self, group: str) -> dict[int, int]:
        """As `kafka-consumer-groups` asks for it."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            asked = [TopicPartition(self.topic, p) for p in range(self.partitions)]
            return {tp.partition: tp.offset for tp in consumer.committed(asked, timeout=30) if tp.offset >= 0}
        finally:
            consumer.close()


def from_kafka(spark: Any, servers: str, *topics: str, **options: str) -> Any:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", ",".join(topics)).option("kafka.isolation.level", "read_committed")
    for name, value in ({"startingOffsets": "earliest"} | options).items():
        reader = reader.option(name, value)
    return reader.load().select("value")


@contextmanager
def member_of(servers: str, group: str, topic: str) -> Iterator[None]:
    config: dict[str, Any] = {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
    consumer = Consumer(config | {"session.timeout.ms": 6000, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        yield
    finally:
        consumer.close()


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


def test_the_group_moves_with_every_batch_and_only_with_it(
    kafka_source: Any, target: Target, unique: Unique, sinks: MakeSink, tmp_path: Path
) -> None:
    servers, group = target.servers, unique("lag")
    orders = Orders(servers, unique("orders"))
    topic, checkpoint = create_topic(servers, unique("out")), tmp_path / "checkpoint"
    sink = sinks(servers, unique("kafka"), topic=topic, group_id=group)
    query = from_kafka(kafka_source, servers, orders.topic)
    seen_inside = []

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        transaction.write(frame)
        seen_inside.append(orders.committed(group))

    orders.add(20)
    run(query, write, checkpoint)
    assert orders.committed(group) == orders.ends == {0: 10, 1: 10}
    orders.add(7)
    run(query, write, checkpoint)
    assert orders.committed(group) == orders.ends == {0: 14, 1: 13}
    assert seen_inside == [{}, {0: 10, 1: 10}], "offsets are not ahead of their rows"
    assert values(servers, topic) == sorted(orders.all)

    # A crash after the commit: the micro-batch is skipped, and the group stays where it is.
    for note in ("1", ".1.crc"):
        (checkpoint / "commits" / note).unlink(missing_ok=True)
    run(query, write, checkpoint)
    assert outcomes(sink) == [(0, "committed", 20), (1, "committed", 7), (1, "skipped", 0)]
    assert orders.committed(group) == orders.ends
    assert values(servers, topic) == sorted(orders.all)


def test_several_kafka_sources_and_one_of_files_share_a_transaction_and_a_group(
    kafka_source: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers, group = broker.bootstrap_servers, unique("lag")
    first, second = Orders(servers, unique("orders")), Orders(servers, unique("returns"), 3)
    topic = create_topic(servers, unique("out"))
    sink = sinks(servers, unique("several"), topic=topic, group_id=group)
    from_files = stream(kafka_source, lines).selectExpr("cast(value AS binary) AS value")
    both = from_kafka(kafka_source, servers, first.topic).union(from_kafka(kafka_source, servers, second.topic))
    checkpoint = tmp_path / "checkpoint"

    first.add(10)
    lines.add_batch(5)
    run(both.union(from_files), sink, checkpoint)
    assert first.committed(group) == first.ends
    second.add(6)
    first.add(1)
    run(both.union(from_files), sink, checkpoint)
    assert (first.committed(group), second.committed(group)) == (first.ends, second.ends)
    assert values(servers, topic) == sorted(first.all + second.all + lines.all)


def test_a_job_that_wrote_with_sparks_own_sink_goes_on_with_this_one_and_keeps_its_checkpoint(
    kafka_source: Any, broker: Broker, unique: Unique, sinks: MakeSink, tmp_path: Path
) -> None:
    servers, group = broker.bootstrap_servers, unique("lag")
    orders, topic = Orders(servers, unique("orders")), create_topic(servers, unique("out"))
    query, checkpoint = from_kafka(kafka_source, servers, orders.topic), tmp_path / "checkpoint"

    for count in (5, 6):
        orders.add(count)
        writer = query.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(60)

    orders.add(7)
    sink = sinks(servers, unique("changed"), topic=topic, group_id=group)
    run(query, sink, checkpoint)
    assert outcomes(sink) == [(2, "committed", 7)]
    assert orders.committed(group) == orders.ends
    assert values(servers, topic) == sorted(orders.all)


def test_offsets_follow_the_commit_where_the_sources_are_in_another_cluster(
    kafka_source: Any,
    broker: Broker,
    start_broker: StartBroker,
    unique: Unique,
    sinks: MakeSink,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fencepost.spark")
    servers, group = broker.bootstrap_servers, unique("lag")
    source = start_broker()
    orders, topic = Orders(source.bootstrap_servers, "orders"), create_topic(servers, unique("out"))
    orders.add(6)
    query, checkpoint = from_kafka(kafka_source, source.bootstrap_servers, orders.topic), tmp_path / "checkpoint"
    mistaken = sinks(servers, unique("mistaken"), topic=topic, group_id=group)
    with pytest.raises(Exception, match=r"set fencepost\.source\.bootstrap\.servers"):
        run(query, mistaken, tmp_path / "mistaken")
    assert written(servers, topic) == 0

    elsewhere = {"fencepost_source_bootstrap_servers": source.bootstrap_servers}
    sink = sinks(servers, unique("far"), topic=topic, group_id=group, adopt="the old query", **elsewhere)
    run(query, sink, checkpoint)
    assert orders.committed(group) == orders.ends
    assert f"source offsets committed to group {group} after the transaction" in caplog.text
    assert json.loads(sink.starting_offsets([orders.topic])) == {orders.topic: {"0": 3, "1": 3}}

    # The group has members: the broker of the sources refuses the offsets, and the micro-batch stays committed.
    orders.add(2)
    with member_of(source.bootstrap_servers, group, orders.topic):
        run(query, sink, checkpoint)
    assert orders.committed(group) == {0: 3, 1: 3}
    assert "micro-batch 1 is committed, but its source offsets could not be committed" in caplog.text

    # A crash before the offsets were committed: the micro-batch is skipped, and the offsets follow.
    for note in ("1", ".1.crc"):
        (checkpoint / "commits" / note).unlink(missing_ok=True)
    run(query, sink, checkpoint)
    assert outcomes(sink) == [(0, "committed", 6), (1, "committed", 2), (1, "skipped", 0)]
    assert orders.committed(group) == orders.ends
    assert values(servers, topic) == sorted(orders.all)
