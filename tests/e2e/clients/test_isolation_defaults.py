"""What a consumer sees that asks for no isolation level: docs/clients.md names the default of each client."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from fencepost.testing import Broker
from tests.engines.java import run_java

JAVA = Path(__file__).parent / "java"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "clients.md"
TIMEOUT_S = 30


def test_the_page_names_the_defaults() -> None:
    [line] = re.findall(r"- \*\*Consumers default to(.*?)\n- ", PAGE.read_text(), re.DOTALL)
    uncommitted, committed = line.split("and to")
    assert "`read_uncommitted`" in uncommitted
    assert "`read_committed`" in committed
    assert all(client in uncommitted for client in ("Java", "aiokafka", "kafka-python"))
    assert "librdkafka" in committed


def test_librdkafka_reads_what_is_committed() -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"aborted")
        assert producer.flush(TIMEOUT_S) == 0
        producer.abort_transaction(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"committed")
        producer.commit_transaction(TIMEOUT_S)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        message = consumer.poll(TIMEOUT_S)
        consumer.close()
    assert message is not None
    assert message.value() == b"committed"


def test_the_other_two_of_python_read_everything() -> None:
    assert KafkaConsumer.DEFAULT_CONFIG["isolation_level"] == "read_uncommitted"
    assert inspect.signature(AIOKafkaConsumer).parameters["isolation_level"].default == "read_uncommitted"


@pytest.mark.java
def test_java_reads_everything() -> None:
    settings = dict(line.split("=", 1) for line in run_java(JAVA / "ClientSettings.java").splitlines())
    assert settings["consumer.isolation.level"] == "read_uncommitted"
