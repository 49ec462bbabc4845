"""Several nodes in one process (`--brokers N`), with real sockets and librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fencepost.testing import Broker

PARTITIONS = 6
# Fewer than fifty, so that a start takes less time.
FEW = {"transaction.state.log.num.partitions": 6, "offsets.topic.num.partitions": 6}


@pytest.fixture(params=["memory", "disk"])
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    data = tmp_path / "data" if request.param == "disk" else None
    with Broker(brokers=3, data=data, topics={"orders": PARTITIONS}, settings=FEW) as broker:
        yield broker


def producer_of(broker: Broker, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(30)
    return producer


def produce_everywhere(producer: Producer, value: str) -> None:
    for index in range(PARTITIONS):
        producer.produce("orders", value.encode(), partition=index)


def values(broker: Broker) -> list[str]:
    return sorted(record.value.decode() for record in broker.read_committed("orders") if record.value)


def test_transactions_over_three_nodes_are_whole(three: Broker) -> None:
    group = Consumer({"bootstrap.servers": three.bootstrap_servers, "group.id": "g"})
    leaders = {p.leader for p in group.list_topics("orders", 30).topics["orders"].partitions.values()}
    assert leaders == {1, 2, 3}
    for number in range(4):
        producer = producer_of(three, f"t{number}")
        for outcome in ("committed", "aborted"):
            producer.begin_transaction()
            produce_everywhere(producer, f"{number} {outcome}")
            offset = number + (1 if outcome == "committed" else 100)
            offsets = [TopicPartition("orders", 0, offset)]
            producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 30)
            if outcome == "committed":
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    assert values(three) == sorted([f"{number} committed" for number in range(4)] * PARTITIONS)
    assert group.committed([TopicPartition("orders", 0)], 30)[0].offset == 4
    group.close()
    assert {txn.state for txn in three.transactions()} == {"CompleteAbort"}
    assert three.warnings == []


def test_a_commit_stops_while_the_nodes_cannot_reach_one_another_and_goes_on_after(three: Broker) -> None:
    producer = producer_of(three, "t")
    producer.begin_transaction()
    produce_everywhere(producer, "x")
    producer.flush(30)
    three.nodes.unplug()
    with pytest.raises(KafkaException) as stopped:
        producer.commit_transaction(1)
    error: KafkaError = stopped.value.args[0]
    assert error.retriable(), error
    assert [txn.state for txn in three.transactions()] == ["PrepareCommit"]
    assert 0 < len(values(three)) < PARTITIONS, "only the coordinator's own node has markers"
    three.nodes.plug()
    producer.commit_transaction(30)
    assert values(three) == ["x"] * PARTITIONS


def test_a_restart_with_another_number_of_nodes_finds_everything(tmp_path: Path) -> None:
    """Who leads is decided anew at each start."""
    for brokers, expected in ((3, 1), (1, 2), (2, 3)):
        broker = Broker(brokers=brokers, data=tmp_path / "data", topics={"orders": PARTITIONS}, settings=FEW)
        with broker:
            producer = producer_of(broker, "t")
            producer.begin_transaction()
            produce_everywhere(producer, "x")
            producer.commit_transaction(30)
            # An open transaction, which the next process finds.
            producer.begin_transaction()
            produce_everywhere(producer, "open")
            producer.flush(30)
            broker.kill()
            broker.start()
            assert producer_of(broker, "t") is not None
            assert values(broker) == ["x"] * PARTITIONS * expected


def test_a_start_finishes_a_commit_that_was_decided_for_partitions_of_several_nodes(tmp_path: Path) -> None:
    with Broker(brokers=3, data=tmp_path / "data", topics={"orders": PARTITIONS}, settings=FEW) as broker:
        producer = producer_of(broker, "t")
        producer.begin_transaction()
        produce_everywhere(producer, "x")
        producer.flush(30)
        broker.crash_at("txn.prepare.after")
        with pytest.raises(KafkaException):
            producer.commit_transaction(1)
        broker.wait_for_exit()
        broker.start()
        producer.commit_transaction(30)
        assert values(broker) == ["x"] * PARTITIONS
