"""The last reads of a run on a broker that stops answering meanwhile: it is not accused of what could not be read."""

from __future__ import annotations

import pytest

from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.producing import produce
from fencepost.protocol.batch import encode_batch
from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.history import Acked, Event, Header, Poll, Rest, Send, WholeLog
from fencepost.verify.workload.last_reads import BY, last_reads
from fencepost.verify.workload.notes import now
from tests.e2e.conftest import StartBroker

TOPIC, TOPICS = "orders", {"orders": 1}
# Of so many kilobytes, that a fetch returns a part of them.
RECORDS, KILOBYTES = 8, 400
# The fetch that reads the log, and the first one of a read_committed reader.
PASSING = 2
PATIENCE_S = 1.0


def written(client: KafkaClient) -> list[Event]:
    """Records that were acknowledged."""
    create_topic(client, TOPIC, 1, 1)
    events: list[Event] = []
    for number in range(RECORDS):
        value = f"{number}:".ljust(KILOBYTES << 10, "x")
        events.append(Send(now(), "writer", None, value, TOPIC, 0))
        base = produce(client, TOPIC, 0, encode_batch([(b"k", value.encode())], 1_000))
        events.append(Acked(now(), "writer", value, TOPIC, 0, base))
    return [*events, Rest(now(), BY)]


def anomalies(events: list[Event]) -> list[str]:
    return [found.kind for found in check_history(arrange(Header(1, {}, TOPICS), events))]


def test_a_partition_that_is_read_in_part_is_not_noted_and_the_broker_is_not_accused(start_broker: StartBroker) -> None:
    broker = start_broker()
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        events = written(client)
        broker.faults.disconnect_on("Fetch", times=None, skip=PASSING, at="request")
        with pytest.raises(ClientError):
            last_reads(client, TOPICS, {}, events.append, patience_s=PATIENCE_S)
    assert not [event for event in events if isinstance(event, Poll | WholeLog)]
    assert anomalies(events) == []


def test_the_last_reads_wait_for_a_broker_that_comes_back(start_broker: StartBroker) -> None:
    broker = start_broker()
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        events = written(client)
        broker.faults.disconnect_on("Fetch", times=40, skip=PASSING, at="request")
        said: list[str] = []
        last_reads(client, TOPICS, {}, events.append, said.append)
    [line] = said
    assert line.startswith("orders-0 cannot be read now; trying again for up to 60 s: ")
    assert sum(len(event.records) for event in events if isinstance(event, Poll)) == RECORDS
    assert anomalies(events) == []
