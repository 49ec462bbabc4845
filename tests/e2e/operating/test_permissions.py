"""The tools on Apache Kafka, for a user who may not ask everything, or may not give an order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.cli import main
from fencepost.cli.options import Unanswered
from fencepost.cli.txn.orders import TO_ABORT
from tests.engines.acls import CLUSTER, Grant, GuardedKafka, guarded_kafka
from tests.examples import Identity, write_unknown
from tests.readers.reading import TIMEOUT_S, read_all
from tests.txn_tools import SETTINGS, create_topic, producer_of, write
from tests.web_server import web_server

pytestmark = pytest.mark.java

STATE_TOPIC = Grant("topic", "__transaction_state", "Describe")
EVERY_ID = Grant("transactional-id", "*", "Describe")
ALTER = Grant("cluster", CLUSTER, "Alter")


@pytest.fixture(scope="module")
def kafka() -> Iterator[GuardedKafka]:
    """`orders-1` has an open transaction on orders-0, and alice may only describe it and the topic."""
    with guarded_kafka(SETTINGS) as kafka:
        create_topic(kafka.bootstrap_servers, "orders", 1)
        producer = producer_of(kafka.bootstrap_servers, "orders-1")
        write(producer, "orders", "half an order", partitions=(0,))
        kafka.grant(Grant("topic", "orders", "Describe"), Grant("transactional-id", "orders-1", "Describe"))
        yield kafka


def as_alice(kafka: GuardedKafka, *command: str) -> int:
    settings = [word for name, value in kafka.settings().items() for word in ("--set", f"{name}={value}")]
    return main([*command, *settings])


@contextmanager
def granted(kafka: GuardedKafka, *grants: Grant) -> Iterator[None]:
    kafka.grant(*grants)
    try:
        yield
    finally:
        kafka.revoke(*grants)


def abort_on(topic: str) -> tuple[str, ...]:
    return "txn", "abort", "--topic", topic, "--partition", "0", "--yes"


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


def to_abort_on(topic: str) -> dict[Grant, str]:
    """Each permission that `TO_ABORT` names, with what is said of it if it is missing."""
    return {
        Grant("topic", topic, "Read"): f"topic {topic}: TOPIC_AUTHORIZATION_FAILED",
        STATE_TOPIC: "topic __transaction_state: TOPIC_AUTHORIZATION_FAILED",
        EVERY_ID: "DESCRIBE on all transactional ids: TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ALTER: "CLUSTER_AUTHORIZATION_FAILED",
    }


def test_the_permissions_that_the_hint_of_an_abort_names_are_needed_and_are_enough(
    kafka: GuardedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(kafka.bootstrap_servers, "audit", 1)
    # No id has this producer id: to be sure of that takes the most permissions.
    write_unknown(kafka.bootstrap_servers, "audit", "audit-1", Identity(4711, 0))
    needed = to_abort_on("audit")
    for missing, said in needed.items():
        with granted(kafka, *(grant for grant in needed if grant != missing)):
            assert as_alice(kafka, *abort_on("audit")) != 0
        problem, _, hint = capsys.readouterr().err.partition("\n\n")
        assert said in problem
        assert hint == f"hint: this user may not do this: it needs {TO_ABORT}\n"
    with granted(kafka, *needed):
        assert as_alice(kafka, *abort_on("audit")) == 0
    assert "Aborted the hanging transaction on audit-0" in capsys.readouterr().out


def test_a_transaction_whose_id_the_user_may_not_see_is_not_taken_for_one_that_hangs(
    kafka: GuardedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(kafka.bootstrap_servers, "payments", 1)
    producer = producer_of(kafka.bootstrap_servers, "payments-1")
    write(producer, "payments", "half a payment", partitions=(0,))
    with granted(kafka, *(grant for grant in to_abort_on("payments") if grant != EVERY_ID)):
        for command in (abort_on("payments"), ("txn", "hanging"), ("txn", "lso")):
            assert as_alice(kafka, *command) == Unanswered.exit_code
            said = capsys.readouterr()
            assert "this user may not see every transactional id" in said.err
            assert "hangs" not in said.out
        as_alice(kafka, "doctor", "--json")
        assert "hanging" not in {finding["check"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    producer.commit_transaction(TIMEOUT_S)
    assert len(read_all(kafka.bootstrap_servers, ["payments"])) == 1


def test_a_hang_on_a_topic_that_the_user_may_not_see_is_not_an_all_clear(
    kafka: GuardedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(kafka.bootstrap_servers, "secret", 1)
    write_unknown(kafka.bootstrap_servers, "secret", "secret-1", Identity(4712, 0))
    producer = producer_of(kafka.bootstrap_servers, "secret-2")
    write(producer, "secret", "half a secret", partitions=(0,))
    # Everything about `orders`, which is all that alice knows.
    with granted(kafka, Grant("topic", "orders", "Read"), STATE_TOPIC, EVERY_ID):
        for command in ("hanging", "lso"):
            assert as_alice(kafka, "txn", command) == Unanswered.exit_code
            said = capsys.readouterr().err
            assert "topics may be hidden from this user, and `secret-2` is open there: DESCRIBE on all topics" in said
    producer.abort_transaction(TIMEOUT_S)


def test_the_workbench_says_what_this_user_may_not_know(kafka: GuardedKafka) -> None:
    settings = [word for name, value in kafka.settings().items() for word in ("--set", f"{name}={value}")]
    with web_server(None, *settings) as server, server.events("/") as events:
        document = next(
            event.document for event in events if event.document["rates_problem"] and event.document["doctor"]
        )
    assert "__transaction_state" in document["rates_problem"]
    assert document["rates"] is None
    assert [row["transactional_id"] for row in document["oldest"]] == ["orders-1"]
    assert document["doctor"]["problems"] != []
