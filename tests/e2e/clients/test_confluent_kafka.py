"""confluent-kafka (librdkafka) against the broker: the client that most Python services use. It speaks TV1.

What all clients do with transactions is in test_transactions.py; here is the rest.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from fencepost.testing import Broker
from tests.e2e.clients.confluent import (
    TIMEOUT_S,
    committed_offset,
    consumer_of,
    create,
    numbers,
    poll_until,
    producer_of,
    read,
    read_messages,
    send,
    transactional,
)
from tests.e2e.clients.scenarios import (
    CODECS,
    TEXTS,
    stored_batches,
)
from tests.e2e.conftest import StartBroker
from tests.readers.reading import connect, end_offsets

Unique = Callable[[str], str]


# --- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_as_they_were_sent_in_every_codec(
    broker: Broker, broker_data: Path, unique: Unique, codec: str
) -> None:
    topic = unique(f"codec-{codec}")
    # librdkafka leaves a batch that compression makes no smaller as it is, and a record may be alone in its batch.
    texts = [f"{text}, " * 100 for text in TEXTS]
    send(producer_of(broker, compression_type=codec), topic, texts)
    assert read(broker, topic) == texts
    # The broker keeps a batch as it came.
    assert {header.attributes & 7 for header, _ in stored_batches(broker_data, topic)} == {CODECS.index(codec)}


def test_keys_headers_timestamps_and_nulls_survive(broker: Broker, unique: Unique) -> None:
    topic = unique("whole")
    producer = producer_of(broker)
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"),
        ("trace", b"twice"),
        ("empty", b""),
        ("null", None),
    ]
    producer.produce(topic, b"value", b"key", headers=headers, timestamp=1_700_000_000_123)
    producer.produce(topic, None, b"tombstone")
    producer.produce(topic, b"", b"")
    producer.produce(topic, None, None)
    assert producer.flush(TIMEOUT_S) == 0
    first, tombstone, empty, nothing = read_messages(broker, topic)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"tombstone", None, None)
    assert (empty.key(), empty.value()) == (b"", b"")
    assert (nothing.key(), nothing.value()) == (None, None)


def test_a_compacted_topic_refuses_records_without_a_key(broker: Broker, unique: Unique) -> None:
    topic = create(broker, unique("compacted"), cleanup_policy="compact")
    producer = producer_of(broker)
    refused: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: refused.append(error))
    producer.flush(TIMEOUT_S)
    assert refused[0] is not None
    assert refused[0].code() == KafkaError.INVALID_RECORD
    # In one batch the records without a key are named. (librdkafka makes no difference if it is only one.)
    answers: dict[bytes | None, int | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        answers[message.value()] = None if error is None else error.code()

    batching = producer_of(broker, linger_ms=1000)
    # Records for a topic that is not known yet are queued one by one when it is, and `flush` sends the first at once.
    batching.list_topics(topic, TIMEOUT_S)
    for value, key in ((b"0", b"key"), (b"1", None), (b"2", b"key"), (b"3", None)):
        batching.produce(topic, value, key, on_delivery=note)
    batching.flush(TIMEOUT_S)
    named, others = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert answers == {b"0": others, b"1": named, b"2": others, b"3": named}
    send(producer, topic, ["kept"], key=b"key")
    assert read(broker, topic) == ["kept"]


def test_what_was_flushed_with_acks_0_by_a_process_that_ended_is_written(broker: Broker, unique: Unique) -> None:
    topic, count = create(broker, unique("leaving")), 3000
    program = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "0", "batch.num.messages": 1, "linger.ms": 0})
for number in range(int(sys.argv[3])):
    producer.produce(sys.argv[2], b"%d" % number, partition=0)
assert producer.flush(60) == 0
"""
    subprocess.run([sys.executable, "-c", program, broker.bootstrap_servers, topic, str(count)], check=True)
    with connect(broker.bootstrap_servers) as client:
        deadline = time.monotonic() + TIMEOUT_S
        while (found := end_offsets(client, [topic])[topic, 0]) < count:
            assert time.monotonic() < deadline, f"{found} of {count} records are there"
            time.sleep(0.02)


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_partitions_move_as_consumers_come_and_go_and_each_record_is_read_once(
    broker: Broker, unique: Unique, assignor: str
) -> None:
    topic, group_id = create(broker, unique("moving"), partitions=6), unique("group")
    everything = set(range(6))
    producer = producer_of(broker)
    sent: list[str] = []
    got: list[str] = []

    def send_more() -> None:
        values = [f"{len(sent) + number}" for number in range(30)]
        sent.extend(values)
        send(producer, topic, values)

    def share(*consumers: Consumer) -> None:
        """Poll until they have all partitions between them, in equal parts."""

        def is_fair() -> bool:
            parts = [numbers(consumer) for consumer in consumers]
            size = len(everything) // len(consumers)
            return all(len(part) == size for part in parts) and set().union(*parts) == everything

        send_more()
        poll_until(consumers, is_fair, f"{len(consumers)} consumers share {everything}", got)

    config = {"partition.assignment.strategy": assignor}
    with consumer_of(broker, group_id, **config) as first:
        first.subscribe([topic])
        share(first)
        with consumer_of(broker, group_id, **config) as second:
            second.subscribe([topic])
            share(first, second)
        share(first)
        with consumer_of(broker, group_id, **config) as third:
            third.subscribe([topic])
            share(first, third)
            poll_until([first, third], lambda: len(got) >= len(sent), "all records came", got)
    assert sorted(got, key=int) == sent


DIES = """
import sys
from confluent_kafka import Consumer
bootstrap_servers, group_id, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group_id, "session.timeout.ms": 1000,
                     "heartbeat.interval.ms": 100})
consumer.subscribe([topic])
while True:
    consumer.poll(0.02)
    print(len(consumer.assignment()), flush=True)
"""


def test_the_partitions_of_a_consumer_that_dies_go_to_the_others(broker: Broker, unique: Unique) -> None:
    topic, group_id = create(broker, unique("dies"), partitions=2), unique("group")
    with consumer_of(broker, group_id, session_timeout_ms=1000) as lives:
        lives.subscribe([topic])
        arguments = [sys.executable, "-c", DIES, broker.bootstrap_servers, group_id, topic]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as dies:
            try:
                poll_until([lives], lambda: len(numbers(lives)) == 2, "it has both")
                poll_until([lives], lambda: len(numbers(lives)) == 1, "they have one each")
            finally:
                dies.kill()
        poll_until([lives], lambda: len(numbers(lives)) == 2, "it has both again")


# --- crashes ----------------------------------------------------------------------------------------------


def test_records_sent_while_the_broker_restarts_are_neither_lost_nor_doubled(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic, count = create(broker, "steady"), 3000
    producer = producer_of(broker, enable_idempotence=True, linger_ms=1)
    failed: list[KafkaError] = []
    acknowledged = 0
    progress = threading.Condition()

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        with progress:
            if error is not None:
                failed.append(error)
            acknowledged += 1
            progress.notify()

    def produce() -> None:
        for number in range(count):
            producer.produce(topic, str(number).encode(), on_delivery=delivered)
            producer.poll(0.001)
        producer.flush(TIMEOUT_S)

    def wait_for(number: int) -> None:
        with progress:
            assert progress.wait_for(lambda: acknowledged >= number, TIMEOUT_S)

    thread = threading.Thread(target=produce)
    thread.start()
    wait_for(300)
    broker.restart()
    wait_for(1200)
    broker.kill()
    broker.restart()
    thread.join()
    assert failed == []
    assert read(broker, topic) == [str(number) for number in range(count)]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_producer_that_outlives_a_power_loss_hears_that_it_is_fenced(
    start_broker: StartBroker, is_open: bool
) -> None:
    broker = start_broker()
    create(broker, "topic")
    old = transactional(broker, "txn")
    old.begin_transaction()
    if is_open:
        send(old, "topic", ["zombie"])
    broker.kill()
    assert broker.data is not None
    (broker.data / "boot-id").write_text("another boot")
    broker.restart()
    if not is_open:
        old.produce("topic", b"zombie")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert refused.value.args[0].fatal()
    new = transactional(broker, "txn")
    new.begin_transaction()
    send(new, "topic", ["heir"])
    new.commit_transaction(TIMEOUT_S)
    assert read(broker, "topic") == ["heir"]


@pytest.mark.parametrize("point", ["txn.prepare.before", "txn.prepare.after", "txn.complete.after"])
def test_a_commit_during_which_the_broker_is_killed_happens_once(start_broker: StartBroker, point: str) -> None:
    # The second transaction to end does not get past the point.
    broker = start_broker(fencepost_crash_at=f"{point}:2")
    producer = transactional(broker, "txn")

    def restart_when_dead() -> None:
        assert broker.wait_for_exit(TIMEOUT_S) == -9
        broker.restart()

    restarting = threading.Thread(target=restart_when_dead)
    for value in ("first", "second"):
        producer.begin_transaction()
        send(producer, "topic", [value])
        if value == "second":
            restarting.start()
        producer.commit_transaction(TIMEOUT_S)
    restarting.join()
    assert read(broker, "topic") == ["first", "second"]


# --- the client's own example -----------------------------------------------------------------------------


def test_the_clients_consume_transform_produce_example_runs(broker: Broker, unique: Unique) -> None:
    """As examples/eos_transactions.py of confluent-kafka-python: a transaction for every hundred records."""
    source, target, group_id = unique("input"), unique("output"), unique("eos")
    send(producer_of(broker), source, (f"{number}" for number in range(250)))

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(source, 0)])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": unique("eos")})
    producer.init_transactions()
    producer.begin_transaction()
    count = 0
    while True:
        producer.poll(0)
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, value = message.error(), message.value()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        assert value is not None
        producer.produce(target, b64encode(value))
        count += 1
        if count % 100 == 0:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
            producer.begin_transaction()
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()

    assert read(broker, target) == [b64encode(f"{number}".encode()).decode() for number in range(250)]
    assert committed_offset(broker, group_id, source) == 250
