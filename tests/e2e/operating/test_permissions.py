"""The tools on Apache Kafka, for a user who may not ask everything, or may not give an order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.cli import main
from tests.engines.acls import Grant, GuardedKafka, guarded_kafka
from tests.txn_tools import create_topic, producer_of, write

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def kafka() -> Iterator[GuardedKafka]:
    """`orders-1` has an open transaction on orders-0, and alice may only describe it and the topic."""
    with guarded_kafka() as kafka:
        create_topic(kafka.bootstrap_servers, "orders", 1)
        producer = producer_of(kafka.bootstrap_servers, "orders-1")
        write(producer, "orders", "half an order", partitions=(0,))
        kafka.grant(Grant("topic", "orders", "Describe"), Grant("transactional-id", "orders-1", "Describe"))
        yield kafka


def as_alice(kafka: GuardedKafka, *command: str) -> int:
    settings = [word for name, value in kafka.settings().items() for word in ("--set", f"{name}={value}")]
    return main([*command, *settings])


def test_doctor_reports_readers_that_wait_for_a_transaction_that_it_may_not_see(
    kafka: GuardedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_alice(kafka, "doctor") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "PROBLEM readers of orders-0 wait, and it is not known for which transaction" in said
    assert "READ on topic orders is missing" in said


def test_an_order_that_is_refused_has_failed(kafka: GuardedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_alice(kafka, "txn", "fence", "orders-1", "--yes") == 1
    said = capsys.readouterr().err
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in said
    assert "hint: this user may not do this: it needs DESCRIBE and WRITE on the transactional id" in said
