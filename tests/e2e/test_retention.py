"""Logs that get shorter while real clients use them: retention, DeleteRecords, compaction, and kill -9 in between."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol import errors
from fencepost.protocol.messages import ListOffsetsRequest
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker
from tests.engines.apache_kafka import run_tool
from tests.engines.java import why_no_java
from tests.readers.reading import IMPATIENT, TIMEOUT_S, connect, end_offsets

EARLIEST = -2
OFTEN = {"log_retention_check_interval_ms": "50", "log_cleaner_backoff_ms": "50"}


def create(broker: Broker, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, num_partitions=1, config=settings)])[name].result(TIMEOUT_S)


def earliest(broker: Broker, topic: str) -> int:
    with connect(broker.bootstrap_servers) as client:
        wanted = ListOffsetsRequest.ListOffsetsTopic(topic, [ListOffsetsRequest.ListOffsetsPartition(0, -1, EARLIEST)])
        found = client.call(ListOffsetsRequest(-1, 0, [wanted]), version=6).topics[0].partitions[0]
        assert found.error_code == errors.NONE
        return int(found.offset)


def broker_that_dies(point: str, data: Path) -> Broker:
    settings = {name.replace("_", "."): value for name, value in OFTEN.items()}
    return Broker(data=data, settings=settings | {"fencepost.crash.at": point})


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def produce(broker: Broker, topic: str, count: int, size: int = 500) -> None:
    producer = Producer(IMPATIENT | {"bootstrap.servers": broker.bootstrap_servers})
    for n in range(count):
        producer.produce(topic, str(n).rjust(size).encode(), key=b"k")
        assert producer.flush(TIMEOUT_S) == 0  # A batch for each.


def read(broker: Broker, topic: str, isolation_level: str = "read_committed") -> list[tuple[int, Any, Any]]:
    """Offset, key and value of everything that a consumer gets that begins at the beginning."""
    with connect(broker.bootstrap_servers) as client:
        until = end_offsets(client, [topic], isolation_level == "read_committed")[topic, 0]
    consumer = Consumer(
        IMPATIENT
        | {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen: list[tuple[int, Any, Any]] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while True:
            assert time.monotonic() < deadline
            message: Any
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    seen.append((message.offset(), message.key(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF and message.offset() >= until:
                    return seen
    finally:
        consumer.close()


# --- retention ----------------------------------------------------------------------------------------------


def test_old_records_go_and_readers_go_on_with_what_is_left(start_broker: StartBroker) -> None:
    broker = start_broker(**OFTEN)
    create(broker, "orders", segment_bytes="4096", retention_bytes="8192")
    produce(broker, "orders", 60)
    wait_for(lambda: earliest(broker, "orders") > 30)
    start = earliest(broker, "orders")
    # A consumer with an older offset gets an error, and begins where the log does. More may have gone meanwhile.
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "late", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition("orders", 0, 3)])
    found: list[Any] = []
    wait_for(lambda: found.extend(consumer.consume(1, 0.1)) or bool(found))  # type: ignore[func-returns-value]
    assert start <= found[0].offset() <= earliest(broker, "orders")
    consumer.close()
    broker.kill()
    broker.start()
    assert earliest(broker, "orders") >= start
    assert [offset for offset, _, _ in read(broker, "orders")][-1] == 59


@pytest.mark.java
def test_kafkas_own_tool_deletes_records(start_broker: StartBroker, tmp_path: Path) -> None:
    if reason := why_no_java():
        pytest.skip(reason)
    broker = start_broker()
    create(broker, "orders")
    produce(broker, "orders", 10)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 7}]}')
    said = run_tool("kafka-delete-records", "--bootstrap-server", broker.bootstrap_servers, "--offset-json-file", plan)
    assert "partition: orders-0\tlow_watermark: 7" in said
    assert earliest(broker, "orders") == 7


# --- compaction ---------------------------------------------------------------------------------------------


def write_keyed(broker: Broker, topic: str, rounds: int, first: int = 0) -> dict[bytes, bytes]:
    """Transactions over ten keys, every third aborted, some that delete a key; what is left in the end."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"writer-of-{topic}"}
    producer = Producer(IMPATIENT | config)
    producer.init_transactions(TIMEOUT_S)
    left: dict[bytes, bytes] = {}
    for number in range(first, first + rounds):
        producer.begin_transaction()
        written = {}
        for key in (b"key-%d" % (number % 10), b"key-%d" % (number * 7 % 10)):
            value = None if number % 5 == 4 else b"%d " % number + b"x" * 100
            producer.produce(topic, value, key=key)
            written[key] = value
        if number % 3:
            producer.commit_transaction(TIMEOUT_S)
            left |= written  # type: ignore[arg-type]
        else:
            assert producer.flush(TIMEOUT_S) == 0
            producer.abort_transaction(TIMEOUT_S)
    return {key: value for key, value in left.items() if value is not None}


def last_values(seen: list[tuple[int, Any, Any]]) -> dict[bytes, bytes]:
    return {key: value for key, value in {key: value for _, key, value in seen}.items() if value is not None}


def wait_until_clean(broker: Broker, topic: str, records: int) -> list[tuple[int, Any, Any]]:
    wait_for(lambda: len(read(broker, topic, "read_uncommitted")) <= records)
    return read(broker, topic)


@pytest.mark.java
def test_dump_log_reads_a_folder_that_was_cleaned(start_broker: StartBroker) -> None:
    if reason := why_no_java():
        pytest.skip(reason)
    broker = start_broker(**OFTEN, fencepost_state_clean_bytes="4096", log_index_interval_bytes="200")
    create(broker, "prices", cleanup_policy="compact", segment_bytes="4096", min_cleanable_dirty_ratio="0.01")
    quiet = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    quiet.produce("prices", b"soon hidden", key=b"key-1")
    assert quiet.flush(TIMEOUT_S) == 0
    del quiet
    expected = write_keyed(broker, "prices", 60)
    wait_until_clean(broker, "prices", 60)
    broker.stop()
    assert broker.data is not None
    cleaned = [broker.data / "prices-0", *broker.data.glob("__transaction_state-*")]

    def names(suffix: str) -> list[str]:
        return [str(p) for folder in cleaned for p in sorted(folder.glob(f"*.{suffix}")) if p.stat().st_size]

    text = run_tool("kafka-dump-log", "--files", ",".join(names("log")), "--print-data-log", "--deep-iteration")
    assert set(re.findall(r"isvalid: (\w+)", text)) == {"true"}
    assert "deleteHorizonMs: OptionalLong[" in text, "tombstones have their time"
    assert re.search(r"^baseOffset: 0 lastOffset: 0 count: 0 ", text, re.MULTILINE), "the quiet producer is still known"
    found = re.findall(r"key: (key-\d) payload: (\d+ x+)", text)
    assert {(key.encode(), value.encode()) for key, value in found} >= expected.items()
    indexes = names("index") + names("timeindex")
    checked = run_tool("kafka-dump-log", "--files", ",".join(indexes), "--index-sanity-check")
    assert checked.count("passed sanity check") == len(indexes)
    run_tool("kafka-dump-log", "--files", ",".join(names("txnindex") + names("snapshot")))


POINTS = ["clean.swap.before", "clean.swap.after", "clean.install"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_while_a_topic_is_cleaned_loses_nothing(point: str, tmp_path: Path) -> None:
    with broker_that_dies(point, tmp_path) as broker:
        create(broker, "prices", cleanup_policy="compact", segment_bytes="8192", min_cleanable_dirty_ratio="0.01")
        written = threading.Event()
        expected: dict[bytes, bytes] = {}

        def write() -> None:
            expected.update(write_keyed(broker, "prices", 120))
            written.set()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        assert broker.wait_for_exit(TIMEOUT_S) == -signal.SIGKILL
        del broker.settings["fencepost.crash.at"]
        broker.start()
        assert written.wait(TIMEOUT_S)
        seen = wait_until_clean(broker, "prices", 150)
        assert last_values(seen) == expected
