"""confluent-kafka in few words, for its own tests and for those that need some client to write and read with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.testing import Broker

TIMEOUT_S = 30.0


# A broker that is killed here is back within a second. While no broker at all can be reached, librdkafka 2.16 may
# begin anew from the bootstrap servers, and then asks the group's coordinator over a connection that it has given
# up: the transaction hangs. It does so with Apache Kafka too.
RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "metadata.recovery.strategy": "none"}


def producer_of(broker: Broker, **config: Any) -> Producer:
    """`_` in a setting's name stands for `.`."""
    return Producer({"bootstrap.servers": broker.bootstrap_servers} | RECONNECT | dotted(config))


def transactional(broker: Broker, transactional_id: str, **config: Any) -> Producer:
    producer = producer_of(broker, transactional_id=transactional_id, **config)
    producer.init_transactions(TIMEOUT_S)
    return producer


def initialise(producer: Producer) -> None:
    """Initialise its transactions, as often as an answer is missing."""
    while True:
        try:
            producer.init_transactions(TIMEOUT_S)
        except KafkaException as e:
            if not e.args[0].retriable():
                raise
        else:
            return


@contextmanager
def consumer_of(broker: Broker, group_id: str, **config: Any) -> Iterator[Consumer]:
    defaults = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group_id,
        "auto.offset.reset": "earliest",
        # Members hear of a rebalance from the answer to a heartbeat.
        "heartbeat.interval.ms": 100,
    }
    consumer = Consumer(defaults | RECONNECT | dotted(config))
    try:
        yield consumer
    finally:
        consumer.close()


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}


def admin_of(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> str:
    new = NewTopic(topic, num_partitions=partitions, config=dotted(config))
    admin = admin_of(broker)
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    return topic


def send(producer: Producer, topic: str, values: Iterable[str], **more: Any) -> None:
    """Produce and wait until the broker has taken every record."""
    for value in values:
        producer.produce(topic, value.encode(), **more)
    assert producer.flush(TIMEOUT_S) == 0


def read_messages(broker: Broker, topic: str, isolation_level: str = "read_committed") -> list[Message]:
    """Everything that a reader of this isolation level can see now."""
    # The end is known when a fetch comes back empty, so it should not wait for more.
    config = {"isolation.level": isolation_level, "enable.partition.eof": True, "fetch.wait.max.ms": 5}
    with consumer_of(broker, "reader", **config) as consumer:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
        open_partitions = set(partitions)
        messages = []
        while open_partitions:
            message = next_message(consumer)
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
        return messages


def read(broker: Broker, topic: str, isolation_level: str = "read_committed") -> list[str]:
    return [text_of(message) for message in read_messages(broker, topic, isolation_level)]


def text_of(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


def next_message(consumer: Consumer) -> Message:
    message = consumer.poll(TIMEOUT_S)
    assert message is not None, "nothing came"
    return message


def poll_until(
    consumers: Sequence[Consumer], is_done: Callable[[], bool], what: str, values: list[str] | None = None
) -> None:
    """Poll all of them in turn until it is so; what comes meanwhile goes to `values`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, f"never so: {what}"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            if error is None:
                if values is not None:
                    values.append(text_of(message))
            elif error.code() == KafkaError._FATAL:
                raise KafkaException(error)


def numbers(consumer: Consumer) -> set[int]:
    return {assigned.partition for assigned in consumer.assignment()}


def committed_offset(broker: Broker, group_id: str, topic: str) -> int:
    """The group's offset on partition 0, after everything that is still pending; -1001 is none."""
    with consumer_of(broker, group_id) as consumer:
        return int(consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset)
