"""The consumer protocol (KIP-848) with confluent-kafka and Apache Kafka's own consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from fencepost.testing import Broker
from tests.e2e.clients.confluent import (
    RECONNECT,
    TIMEOUT_S,
    admin_of,
    committed_offset,
    consumer_of,
    create,
    dotted,
    numbers,
    poll_until,
    producer_of,
    read,
    send,
    transactional,
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


def test_a_static_member_comes_back_to_its_partitions(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic"), PARTITIONS), unique("group")
    with member(broker, group, group_instance_id="stays") as stays:
        stays.subscribe([topic])
        with member(broker, group, group_instance_id="goes") as goes:
            goes.subscribe([topic])
            poll_until([stays, goes], lambda: share(stays, goes), "two share")
            had = numbers(goes)
        with member(broker, group, group_instance_id="goes") as back:
            back.subscribe([topic])
            poll_until([stays, back], lambda: numbers(back) != set(), "it is back")
            assert numbers(back) == had
            assert len(numbers(stays)) == PARTITIONS // 2


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


def test_offsets_of_a_member_go_into_a_transaction(broker: Broker, unique: Unique) -> None:
    source, target, group = create(broker, unique("source")), create(broker, unique("target")), unique("group")
    send(producer_of(broker), source, ["a", "b", "c"])
    values: list[str] = []
    producer = transactional(broker, unique("txn"))
    with member(broker, group, enable_auto_commit=False) as consumer:
        consumer.subscribe([source])
        poll_until([consumer], lambda: len(values) == 3, "all was read", values)
        for outcome in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            send(producer, target, [value.upper() for value in values])
            position = [TopicPartition(source, 0, 3)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
            outcome(TIMEOUT_S)
    assert read(broker, target) == ["A", "B", "C"]
    assert committed_offset(broker, group, source) == 3


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


def test_administrators_see_the_group(broker: Broker, unique: Unique) -> None:
    topic, group = create(broker, unique("topic"), PARTITIONS), unique("group")
    with member(broker, group, group_remote_assignor="range") as consumer:
        consumer.subscribe([topic])
        poll_until([consumer], lambda: share(consumer), "it has all")
        admin = admin_of(broker)
        found = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert (found.state.name, found.type.name, found.partition_assignor) == ("STABLE", "CONSUMER", "range")
        [seen] = found.members
        assert {p.partition for p in seen.assignment.topic_partitions} == set(range(PARTITIONS))


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
