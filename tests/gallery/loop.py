"""What the programs of the gallery share: their settings, and the batches of messages that they process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SOURCE, *TARGETS = sys.argv[1:]
GROUP = "tills"
# A test sets $GALLERY_SETTINGS for a cluster that wants a login.
BOOTSTRAP = {
    "bootstrap.servers": os.environ["FENCEPOST_BOOTSTRAP"],
    **json.loads(os.environ.get("GALLERY_SETTINGS", "{}")),
}
CONSUMER = {
    **BOOTSTRAP,
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,  # A killed program works again after this time.
    "heartbeat.interval.ms": 500,
}
PRODUCER = {**BOOTSTRAP, "transaction.timeout.ms": 10_000, "linger.ms": 2}


def batches(consumer: Consumer) -> Iterator[list[Any]]:
    """Up to ten messages at a time. Messages of partitions that the group takes away are dropped."""
    taken: list[Any] = []
    consumer.subscribe([SOURCE], on_revoke=lambda consumer, partitions: taken.clear())
    return _taken(consumer, taken)


def assigned_batches(consumer: Consumer) -> Iterator[list[Any]]:
    """The same from all partitions, from the committed offsets on, without the group's rebalances."""
    partitions = consumer.list_topics(SOURCE).topics[SOURCE].partitions
    consumer.assign(consumer.committed([TopicPartition(SOURCE, partition) for partition in partitions]))
    return _taken(consumer, [])


def _taken(consumer: Consumer, taken: list[Any]) -> Iterator[list[Any]]:
    while True:
        while len(taken) < 10 and (message := consumer.poll(0.02 if taken else 0.5)) is not None:
            if message.error():
                raise KafkaException(message.error())
            taken.append(message)
        if taken:
            yield list(taken)
        taken.clear()


def pay(producer: Producer, messages: list[Any]) -> None:
    """One output for each message in each output topic, and some milliseconds of work."""
    for message in messages:
        for target in TARGETS:
            producer.produce(target, b"paid " + message.value(), message.key())
    producer.flush()
    time.sleep(0.03)


def offsets_after(messages: list[Any]) -> list[TopicPartition]:
    """The offsets to continue at."""
    last = {(message.topic(), message.partition()): message.offset() for message in messages}
    return [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in last.items()]
