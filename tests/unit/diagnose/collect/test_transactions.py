"""An id that does not exist: which others are offered, and that no question about it changes the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.cli import main
from fencepost.client.client import KafkaClient
from fencepost.client.connection import BrokerConnection
from fencepost.diagnose.collect.transactions import similar_ids
from fencepost.diagnose.snapshot import TXN_TOPIC
from fencepost.protocol.messages import FindCoordinatorRequest
from fencepost.protocol.schema import Message
from fencepost.testing import Broker


def test_ids_that_begin_with_the_given_text_are_offered_first() -> None:
    known = ["audio", "audits", "audit-of-the-whole-shop-2", "orders"]
    assert similar_ids("audit", known) == ("audit-of-the-whole-shop-2", "audits", "audio")
    assert similar_ids("nothing", known) == ()


@pytest.mark.parametrize("command", [("explain",), ("describe",), ("history",), ("fence", "--yes"), ("abort", "--yes")])
def test_no_command_about_an_id_creates_the_log_of_transactions(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[type[Message]] = []

    class Recorded(KafkaClient):
        def send(self, connection: BrokerConnection, request: Message, at_most: int | None = None) -> Any:
            sent.append(type(request))
            return super().send(connection, request, at_most)

    monkeypatch.setattr("fencepost.client.client.KafkaClient", Recorded)
    with Broker() as broker:
        assert main(["txn", *command, "orders-sink", "--bootstrap", broker.bootstrap_servers]) == 1
        with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
            assert TXN_TOPIC not in client.refresh(None)
    # Apache Kafka creates the topic when it is asked for a coordinator.
    assert FindCoordinatorRequest not in sent
    assert "no coordinator knows `orders-sink`" in capsys.readouterr().err
