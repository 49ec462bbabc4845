"""How many requests a command sends to a broker with an open transaction and a hanging one. More is a regression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from fencepost.client.client import KafkaClient
from fencepost.client.connection import BrokerConnection
from fencepost.diagnose.collect.overview import collect_overview
from fencepost.diagnose.exporter.collecting import collect_reading
from fencepost.testing import Broker
from tests.examples import hang
from tests.txn_tools import SETTINGS, Run, create_topic, producer_of, runner, write

OPEN, HUNG, DONE = "orders-open", "orders-hung", "orders-done"
Counts = Counter[str]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(settings=SETTINGS) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        hang(broker.bootstrap_servers, create_topic(broker.bootstrap_servers, "audit"), HUNG)
        done = producer_of(broker.bootstrap_servers, DONE)
        write(done, "orders", "placed")
        done.commit_transaction(60)
        producer: Producer = producer_of(broker.bootstrap_servers, OPEN)
        write(producer, "orders", "placed")
        yield broker.bootstrap_servers


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Requests by name, without those that begin a connection."""
    counts: Counts = Counter()
    ask = BrokerConnection.request

    def request(self: BrokerConnection, message: Any, *rest: Any, **given: Any) -> Any:
        counts[type(message).__name__.removesuffix("Request")] += 1
        return ask(self, message, *rest, **given)

    monkeypatch.setattr(BrokerConnection, "request", request)
    return counts


MOST = {
    "txn lso": 21,
    "txn lso orders": 17,
    "txn hanging": 17,
    "txn list": 5,
    f"txn describe {OPEN}": 20,
    f"txn explain {OPEN}": 29,
    f"txn explain {DONE}": 27,
    f"txn explain {HUNG}": 34,
    "group list": 10,
    "doctor": 39,
}


@pytest.mark.parametrize(("command", "most"), MOST.items())
def test_a_command_sends_no_more_requests(
    servers: str,
    sent: Counts,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    most: int,
) -> None:
    run: Run = runner(servers, capsys, monkeypatch)
    run(*command.split())
    assert sent.total() <= most, dict(sent)


@pytest.mark.parametrize(("collect", "most"), [(collect_overview, 25), (collect_reading, 26)])
def test_a_look_sends_no_more_requests(
    servers: str, sent: Counts, collect: Callable[[KafkaClient], object], most: int
) -> None:
    with KafkaClient({"bootstrap.servers": servers}) as client:
        collect(client)
    assert sent.total() <= most, dict(sent)
