"""The consumer protocol (KIP-848) with confluent-kafka and Apache Kafka's own consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer

from fencepost.testing import Broker
from tests.e2e.clients.confluent import (
    RECONNECT,
    consumer_of,
    create,
    dotted,
    numbers,
    poll_until,
    producer_of,
    send,
)
from tests.e2e.clients.test_java import report_of, story
from tests.e2e.conftest import IMPATIENT
from tests.engines.apache_kafka import run_tool

Unique = Callable[[str], str]
PARTITIONS = 6
# Members hear of changes from the answer to a heartbeat.
SETTINGS = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.assignment.interval.ms": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("consumer-protocol"), settings=IMPATIENT | SETTINGS) as broker:
        yield broker


@contextmanager
def member(broker: Broker, group: str, **config: Any) -> Iterator[Consumer]:
    defaults = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(defaults | RECONNECT | dotted(config))
    try:
        yield consumer
    finally:
        consumer.close()


def share(*consumers: Consumer) -> bool:
    """Whether they have all partitions between them, in equal parts."""
    had = [numbers(consumer) for consumer in consumers]
    is_fair = all(len(some) == PARTITIONS // len(consumers) for some in had)
    return is_fair and set().union(*had) == set(range(PARTITIONS))


def test_partitions_move_as_members_come_and_go_and_each_record_is_read_once(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic"), PARTITIONS), unique("group")
    producer = producer_of(broker)
    values: list[str] = []
    with member(broker, group) as first:
        first.subscribe([topic])
        poll_until([first], lambda: share(first), "the first has all", values)
        send(producer, topic, [str(n) for n in range(100)])
        # librdkafka may hand out what it had fetched of a partition, once it has it again: let it read all first.
        poll_until([first], lambda: len(values) == 100, "the first has read all", values)
        with member(broker, group) as second, member(broker, group) as third:
            second.subscribe([topic])
            third.subscribe([topic])
            everybody = [first, second, third]
            poll_until(everybody, lambda: share(*everybody), "three share", values)
            send(producer, topic, [str(n) for n in range(100, 200)])
            poll_until(everybody, lambda: len(set(values)) == 200, "all was read", values)
        poll_until([first], lambda: share(first), "the first has all again", values)
    assert sorted(values, key=int) == [str(n) for n in range(200)]


def test_kill_9_of_the_broker_costs_no_record_and_no_member(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic"), PARTITIONS), unique("group")
    values: list[str] = []
    with member(broker, group) as first, member(broker, group) as second:
        both = [first, second]
        for consumer in both:
            consumer.subscribe([topic])
        poll_until(both, lambda: share(*both), "two share", values)
        had = numbers(first)
        broker.kill()
        broker.start()
        send(producer_of(broker), topic, [str(n) for n in range(60)])
        poll_until(both, lambda: len(values) >= 60, "all was read", values)
        assert numbers(first) == had
    assert sorted(values, key=int) == [str(n) for n in range(60)]


def test_a_pattern_finds_topics_that_come_later(broker: Broker, unique: Unique) -> None:
    prefix = unique("pattern")
    create(broker, f"{prefix}-one", PARTITIONS)
    with member(broker, unique("group")) as consumer:
        consumer.subscribe([f"^{prefix}-.*"])
        poll_until([consumer], lambda: len(consumer.assignment()) == PARTITIONS, "it has the first")
        create(broker, f"{prefix}-two")
        poll_until([consumer], lambda: len(consumer.assignment()) == PARTITIONS + 1, "it has both")


def test_a_classic_group_is_replaced_member_by_member(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic"), PARTITIONS), unique("group")
    values: list[str] = []
    producer = producer_of(broker)
    with consumer_of(broker, group, partition_assignment_strategy="cooperative-sticky") as old:
        old.subscribe([topic])
        poll_until([old], lambda: share(old), "the old one has all", values)
        send(producer, topic, [str(n) for n in range(50)])
        poll_until([old], lambda: len(values) == 50, "the old one has read all", values)
        with member(broker, group) as new:
            new.subscribe([topic])
            poll_until([old, new], lambda: share(old, new), "both share", values)
            send(producer, topic, [str(n) for n in range(50, 100)])
            poll_until([old, new], lambda: len(set(values)) == 100, "all was read", values)
        poll_until([old], lambda: share(old), "the old one has all again", values)
    assert sorted(values, key=int) == [str(n) for n in range(100)]


@pytest.mark.java
def test_kafka_consumer_groups_describes_the_members(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic"), PARTITIONS), unique("group")
    with member(broker, group, client_id="reader-1") as consumer:
        consumer.subscribe([topic])
        poll_until([consumer], lambda: share(consumer), "it has all")
        arguments = ("--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group)
        described = run_tool("kafka-consumer-groups", *arguments, "--members", "--verbose")
        assert "reader-1" in described
        assert f"{topic}:0,1,2,3,4,5" in described


@pytest.fixture(scope="module")
def java(broker: Broker, unique: Unique) -> dict[str, str]:
    return report_of("Groups", broker, unique("java"), "consumer")


@pytest.mark.java
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_java_members_come_and_go_and_each_record_is_read_once(java: dict[str, str], assignor: str) -> None:
    assert story(java, assignor) == {"revokedByAJoin": "3", "records": "120 read, 120 different"}


@pytest.mark.java
def test_a_static_java_member_comes_back_to_its_partitions(java: dict[str, str]) -> None:
    assert story(java, "static") == {"same": "true", "revoked": "0"}


@pytest.mark.java
def test_a_group_of_java_consumers_changes_its_protocol_and_back(java: dict[str, str]) -> None:
    assert story(java, "migrated") == {"records": "120 read, 120 different"}
