"""The program of the guide copies a topic with transactions to a real Apache Kafka: readers get the same there."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.testing import Broker
from tests.engines.apache_kafka import ApacheKafka
from tests.readers.reading import TIMEOUT_S

pytestmark = pytest.mark.java
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "moving-to-apache-kafka.md"
PARTITIONS = 2
Row = tuple[int, bytes | None, bytes | None, Any, int]


@pytest.fixture(scope="module")
def program() -> Any:
    [block] = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    module = types.ModuleType("mirror")
    exec(block, module.__dict__)
    return module


def create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)


def rows(servers: str, topic: str) -> list[Row]:
    """What a read_committed reader gets, without offsets."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "rows", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: list[Row] = []
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        for message in consumer.consume(100, 0.2):
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                content = (message.key(), message.value(), message.headers(), message.timestamp()[1])
                found.append((partition, *content))
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                at_end.add(partition)
    consumer.close()
    return sorted(found, key=lambda row: row[0])  # Stable: the order within a partition stays.


def writer(servers: str, transactional_id: str, **more: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0} | more)
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, word: str, commit: bool) -> None:
    producer.begin_transaction()
    for n in range(6):
        value = None if n == 5 else f"{word} {n}"  # The last is a tombstone.
        producer.produce(
            topic, value, f"key {n}", partition=n % PARTITIONS, timestamp=1_700_000_000_000 + n, headers=[("n", b"\0")]
        )
    assert producer.flush(TIMEOUT_S) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)


def test_readers_of_the_copy_get_what_readers_of_the_source_get(
    broker: Broker, apache: ApacheKafka, program: Any, unique: Callable[[str], str]
) -> None:
    source, target, topic = broker.bootstrap_servers, apache.bootstrap_servers, unique("moved")
    create(source, topic)
    create(target, topic)
    sink = writer(source, unique("sink"), **{"compression.type": "zstd"})
    for word, commit in (("first", True), ("dropped", False), ("second", True)):
        write(sink, topic, word, commit)
    assert program.mirror(source, target, topic) == 12
    assert rows(target, topic) == rows(source, topic)

    # A run that was killed in the middle of a transaction leaves nothing behind, and the next one repeats nothing.
    killed = writer(target, f"mirror-{topic}")
    killed.begin_transaction()
    killed.produce(topic, b"half a copy", partition=0)
    assert killed.flush(TIMEOUT_S) == 0
    write(sink, topic, "third", True)
    assert program.mirror(source, target, topic) == 6
    copy = rows(target, topic)
    assert copy == rows(source, topic)
    assert len(copy) == 18
    assert program.mirror(source, target, topic) == 0


def test_what_is_open_is_copied_when_it_is_committed(
    broker: Broker, apache: ApacheKafka, program: Any, unique: Callable[[str], str]
) -> None:
    source, target, topic = broker.bootstrap_servers, apache.bootstrap_servers, unique("moved")
    create(source, topic)
    create(target, topic)
    sink = writer(source, unique("sink"))
    sink.begin_transaction()
    sink.produce(topic, b"not yet", partition=0)
    assert sink.flush(TIMEOUT_S) == 0
    assert program.mirror(source, target, topic) == 0
    sink.commit_transaction(TIMEOUT_S)
    assert program.mirror(source, target, topic) == 1
    assert [value for _, _, value, _, _ in rows(target, topic)] == [b"not yet"]
