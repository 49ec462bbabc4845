"""Failovers of a broker with three nodes, and what clients must find afterwards: nothing lost, doubled or torn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from fencepost.broker.topics import OFFSETS_TOPIC
from fencepost.testing import Broker

PARTITIONS = 6
INTERNAL_PARTITIONS = 6
# A paused node answers nothing, and a client waits that long for each answer.
REQUEST_MS = 1000
LIBRDKAFKA: dict[str, str | int | float | bool] = {"socket.timeout.ms": REQUEST_MS, "log_level": 0}
TIMEOUT_S = 120.0


@contextmanager
def three_nodes(data: Path, *topics: str) -> Iterator[Broker]:
    # Fewer than fifty partitions, so that a start takes less time.
    few = ("transaction.state.log.num.partitions", "offsets.topic.num.partitions")
    settings = dict.fromkeys(few, INTERNAL_PARTITIONS)
    with Broker(brokers=3, data=data, topics=dict.fromkeys(topics, PARTITIONS), settings=settings) as broker:
        yield broker


class Failovers:
    """One order after the other: a node stops and starts, leaders and a coordinator move to it, it pauses and goes on.

    `count` is the number of failovers so far; a node that comes back is none, because it leads nothing yet.
    """

    def __init__(self, broker: Broker, topic: str, transactional_id: str) -> None:
        self._nodes = broker.nodes
        self._topic = topic
        self._transactional_id = transactional_id
        self._orders = itertools.chain.from_iterable(map(self._orders_for, itertools.cycle((1, 2, 3))))
        self.count = 0

    def next(self) -> None:
        order, is_failover = next(self._orders)
        order()
        self.count += is_failover

    def _orders_for(self, node_id: int) -> list[tuple[Callable[[], None], bool]]:
        nodes = self._nodes
        return [
            (lambda: nodes.stop(node_id), True),
            (lambda: nodes.start(node_id), False),
            (lambda: self._move_leaders(node_id), True),
            (lambda: nodes.move_coordinator(self._transactional_id, node_id), True),
            (lambda: nodes.pause(node_id), True),
            (lambda: nodes.resume(node_id), False),
        ]

    def _move_leaders(self, node_id: int) -> None:
        """Half of the leaders of the topic, and half of the coordinators of groups."""
        for index in range(0, PARTITIONS, 2):
            self._nodes.move_leader(self._topic, index, node_id)
        for index in range(0, INTERNAL_PARTITIONS, 2):
            self._nodes.move_leader(OFFSETS_TOPIC, index, node_id)


class Input:
    """Sends records to a topic, each once, through all failovers. The key is the number of the partition."""

    def __init__(self, broker: Broker, topic: str) -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(LIBRDKAFKA | settings)
        self._topic = topic
        self.sent: list[str] = []

    def send(self, count: int) -> None:
        """Send more records; `flush` waits until the broker has them."""
        for number in range(len(self.sent), len(self.sent) + count):
            index = number % PARTITIONS
            self._producer.produce(self._topic, f"record-{number}", key=str(index), partition=index)
            self.sent.append(f"record-{number}")

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0


class Output:
    """Reads the committed records of a topic as they come: key and value, in order for each partition."""

    def __init__(self, broker: Broker, topic: str) -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "output", "enable.auto.commit": False}
        self._consumer = Consumer(LIBRDKAFKA | settings | {"isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        self.read: list[tuple[str, str]] = []

    def await_records(self, count: int) -> None:
        wait_until(lambda: self._read_more() >= count, lambda: f"{count} records, {len(self.read)} were read")

    def await_value(self, value: str, count: int) -> None:
        """Wait until a value was read from so many partitions."""

        def is_read() -> bool:
            self._read_more()
            return sum(found == value for _, found in self.read) == count

        wait_until(is_read, lambda: f"{count} times {value!r}; {len(self.read)} records were read")

    def close(self) -> None:
        self._consumer.close()

    def _read_more(self) -> int:
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                self.read.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
        return len(self.read)


def wait_until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S:g} s: {what()}"
        time.sleep(0.01)
