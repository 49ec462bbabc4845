"""Our own client, on our broker and on Apache Kafka: one transaction that several connections write to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.admin.offsets import OffsetToCommit, commit_offsets, committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BadClientSetting, BrokerError, Fenced, Unreachable
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.transaction_version import TransactionVersion
from tests.e2e.conftest import Target


@pytest.fixture
def bootstrap(target: Target) -> str:
    return target.servers


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": bootstrap}) as client:
        yield client


@pytest.fixture
def topic(client: KafkaClient, bootstrap: str, unique: Callable[[str], str]) -> str:
    return create_topic(client, bootstrap, unique("client-orders"), 2)


def create_topic(client: KafkaClient, bootstrap: str, name: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    deadline = time.monotonic() + 30
    while not client.refresh([name]):  # The controller of Apache Kafka is ahead of its broker.
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return name


def produce(
    client: KafkaClient,
    who: ProducerIdentity,
    version: TransactionVersion,
    topic: str,
    partition: int,
    sequence: int,
    value: bytes,
) -> int:
    """Write one record, as any process can that knows the identity of the producer."""
    batch = encode_batch([(b"k", value)], 1_700_000_000_000, who.producer_id, who.producer_epoch, sequence, True)
    data = ProduceRequest.PartitionProduceData(partition, batch)
    request = ProduceRequest(
        who.transactional_id, -1, 30_000, [ProduceRequest.TopicProduceData(topic, partition_data=[data])]
    )
    deadline = time.monotonic() + 30
    while True:
        response = client.send(client.leader(topic, partition), request, 12 if version.bumps_epoch else 11)
        code: int = response.responses[0].partition_responses[0].error_code
        # Apache Kafka's metadata names the leader of a new partition before the leader has it.
        is_on_its_way = code in (errors.NOT_LEADER_OR_FOLLOWER, errors.UNKNOWN_TOPIC_OR_PARTITION)
        if not is_on_its_way or time.monotonic() > deadline:
            return code


def committed_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}-{count}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None, f"{len(found)} of {count} records came"
            assert not message.error()
            value = message.value()
            assert value is not None
            found.append(value)
        return found
    finally:
        consumer.close()


def test_several_connections_write_into_one_transaction_and_a_zombie_is_fenced(
    bootstrap: str, topic: str, client: KafkaClient, unique: Callable[[str], str]
) -> None:
    id_, group = unique("client"), unique("client-group")
    owner = Transaction(client, id_, 60_000)
    owner.init()

    who = owner.begin()
    owner.add_partitions([(topic, 0), (topic, 1)])
    with KafkaClient({"bootstrap.servers": bootstrap}) as task:
        assert produce(client, who, owner.version, topic, 0, 0, b"a") == errors.NONE
        assert produce(task, who, owner.version, topic, 1, 0, b"b") == errors.NONE
        assert produce(task, who, owner.version, topic, 1, 0, b"b") == errors.NONE, "a resent batch is a duplicate"
    owner.commit_offsets(group, [OffsetToCommit(topic, 0, 7, "batch 1")])
    owner.commit()
    assert committed_offsets(client, group, [(topic, 0), (topic, 1)]) == {(topic, 0): (7, "batch 1")}
    assert sorted(committed_values(bootstrap, topic, 2)) == [b"a", b"b"]

    # A late write of a task of the finished transaction.
    assert produce(client, who, owner.version, topic, 0, 1, b"late") != errors.NONE

    aborted = owner.begin()
    owner.add_partitions([(topic, 0)])
    assert produce(client, aborted, owner.version, topic, 0, 0, b"aborted") == errors.NONE
    owner.commit_offsets(group, [OffsetToCommit(topic, 0, 9, "batch 2")])
    owner.abort()
    assert committed_offsets(client, group, [(topic, 0)]) == {(topic, 0): (7, "batch 1")}

    successor = Transaction(client, id_, 60_000)
    successor.init()
    with pytest.raises(Fenced, match=id_):
        owner.renew()

    again = successor.begin()
    successor.add_partitions([(topic, 0)])
    assert produce(client, again, successor.version, topic, 0, 0, b"c") == errors.NONE
    successor.commit()
    assert sorted(committed_values(bootstrap, topic, 3)) == [b"a", b"b", b"c"]


def test_offsets_that_fill_more_than_a_record_batch_are_committed_in_a_transaction_and_outside(
    target: Target, client: KafkaClient, unique: Callable[[str], str]
) -> None:
    """Apache Kafka would answer UNKNOWN_SERVER_ERROR for ever: each record has the name of the group."""
    if target.version == 1:
        pytest.skip("the same requests, one version lower")
    count, long_name = 40, "g" * 30_000
    topic = create_topic(client, target.servers, unique("many"), count)
    for inside in (True, False):
        group = unique(long_name)
        wanted = {(topic, partition): partition + 7 for partition in range(count)}
        if inside:
            owner = Transaction(client, unique("client"), 60_000)
            owner.init()
            owner.commit_offsets(group, [OffsetToCommit(*where, offset) for where, offset in wanted.items()])
            owner.commit()
        else:
            commit_offsets(client, group, wanted)
        found = committed_offsets(client, group, wanted)
        assert {where: offset for where, (offset, _) in found.items()} == wanted


def test_a_timeout_above_the_brokers_maximum_is_a_bad_setting(client: KafkaClient) -> None:
    with pytest.raises(BadClientSetting, match=r"transaction\.max\.timeout\.ms"):
        Transaction(client, "client-2", 2_000_000_000).init()


def test_an_unknown_topic_and_an_unknown_partition_are_named(client: KafkaClient, topic: str) -> None:
    with pytest.raises(BrokerError, match="topic no-such-topic: UNKNOWN_TOPIC_OR_PARTITION"):
        client.topic("no-such-topic")
    with pytest.raises(BrokerError, match="the topic has 2 partitions"):
        client.leader(topic, 2)


def test_an_unreachable_broker_is_named() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        KafkaClient({"bootstrap.servers": "127.0.0.1:1"}).any_broker()
