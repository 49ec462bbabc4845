"""Answers that were true one after the other: a transaction ends, or begins, between two questions.

Apache Kafka answers EndTxn before it writes the markers, so tools that run right after a commit see the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.cli import main
from fencepost.client.admin.answers import DescribedTxn
from fencepost.client.admin.partitions import describe_producers, list_offsets
from fencepost.client.admin.transactions import list_transactions
from fencepost.client.client import KafkaClient
from fencepost.diagnose.collect import look, partitions, transactions
from fencepost.diagnose.explain.explanation import diagnose_txn
from fencepost.diagnose.lso import diagnose_lso
from fencepost.testing import Broker
from tests.unit.diagnose.snapshots import described

ID = "orders-sink"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("payments", 1, 1)]).values():
            made.result(TIMEOUT_S)
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        yield client


@pytest.fixture
def producer(broker: Broker) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": ID, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


def begin(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"placed")
    assert producer.flush(TIMEOUT_S) == 0


def after(first: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
    """`then`, but something happens before the first call of it."""
    left = [first]

    def call(*args: Any, **given: Any) -> Any:
        if left:
            left.pop()()
        return then(*args, **given)

    return call


def test_a_transaction_that_ends_between_two_questions_is_no_orphan(
    client: KafkaClient, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(producer, "orders")
    commits = after(lambda: producer.commit_transaction(TIMEOUT_S), list_transactions)
    monkeypatch.setattr(look, "list_transactions", commits)
    report = diagnose_lso(partitions.collect_lso(client, ["orders"]))
    assert (report.partitions, report.pins) == ((), ()), "nobody waits for what has ended"


def test_nobody_waits_where_the_transaction_has_ended_when_the_producers_are_asked_for(
    client: KafkaClient, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(producer, "orders")
    commits = after(lambda: producer.commit_transaction(TIMEOUT_S), describe_producers)
    monkeypatch.setattr(look, "describe_producers", commits)
    report = diagnose_lso(partitions.collect_lso(client))
    assert (report.partitions, report.waiting_count) == ((), 0)


@pytest.mark.parametrize("question", ["list_offsets", "describe_producers", "list_transactions"])
def test_a_topic_that_is_deleted_between_two_questions_is_no_gap_in_the_answer(
    question: str, broker: Broker, client: KafkaClient, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("short-lived")
    begin(producer, "short-lived")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    deletes = after(lambda: admin.delete_topics(["short-lived"])["short-lived"].result(TIMEOUT_S), vars(look)[question])
    monkeypatch.setattr(look, question, deletes)
    seen = partitions.collect_lso(client)
    assert seen.problems == ()
    assert seen.unconfirmed == frozenset()
    producer.abort_transaction(TIMEOUT_S)


def test_a_topic_that_was_asked_for_and_is_deleted_meanwhile_is_a_gap_in_the_answer(
    broker: Broker, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("named")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    deletes = after(lambda: admin.delete_topics(["named"])["named"].result(TIMEOUT_S), list_offsets)
    monkeypatch.setattr(look, "list_offsets", deletes)
    [problem] = partitions.collect_lso(client, ["named"]).problems
    assert problem == "the offsets of named-0 are unknown: it does not exist: UNKNOWN_TOPIC_OR_PARTITION (3)"


def test_a_transaction_that_begins_between_two_questions_does_not_seem_to_hang(
    client: KafkaClient, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(producer, "payments")
    producer.commit_transaction(TIMEOUT_S)
    begins = after(lambda: begin(producer, "payments"), describe_producers)
    monkeypatch.setattr(look, "describe_producers", begins)
    explanation = diagnose_txn(transactions.collect_txn(client, ID))
    producer.abort_transaction(TIMEOUT_S)
    assert explanation.state == "CompleteCommit"
    assert explanation.hanging == ()


def one_after_the_other(monkeypatch: pytest.MonkeyPatch, *states: str) -> list[str]:
    """The coordinator answers with these states in turn, and then always with the last."""
    left = list(states)

    def describe(client: KafkaClient, transactional_id: str) -> tuple[int, DescribedTxn]:
        return 1, described(left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr(transactions, "describe_transaction", describe)
    return left


def test_an_order_waits_for_the_markers_of_a_decided_transaction(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = one_after_the_other(monkeypatch, "PrepareCommit", "PrepareCommit", "CompleteCommit")
    found = transactions.collect_settled(client, ID)
    assert found is not None
    assert (found.state, left) == ("CompleteCommit", ["CompleteCommit"])


def test_an_order_does_not_wait_for_ever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_after_the_other(monkeypatch, "PrepareCommit")
    monkeypatch.setattr(transactions, "MARKERS_TAKE_MS", 100)
    assert main(["txn", "fence", ID, "--yes", "--bootstrap", broker.bootstrap_servers]) == 1
    assert "is already decided (PrepareCommit)" in capsys.readouterr().err
