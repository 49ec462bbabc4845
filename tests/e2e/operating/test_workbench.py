"""The workbench beside Fencepost and beside Apache Kafka: the same scenario, the same documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.operating.conftest import Run
from tests.examples import hang
from tests.readers.reading import TIMEOUT_S
from tests.web_server import LiveEvent, WebServer, web_server

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def server(servers: str) -> Iterator[WebServer]:
    with web_server(servers) as server:
        yield server


def until(events: Iterator[LiveEvent], holds: Callable[[Any], bool]) -> Any:
    return next(event.document for event in events if event.name == "document" and holds(event.document))


def test_open_and_hanging_transactions_their_readers_and_their_ends_are_seen_on_any_kafka(
    servers: str, server: WebServer, run: Run, unique: Unique
) -> None:
    mine = unique("viewed")
    topic, hung, transactional_id = f"{mine}-open", f"{mine}-hung", f"{mine}-id"
    for name in (topic, hung):
        run("topic", "create", name)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"waits", partition=0)
    producer.flush(TIMEOUT_S)
    hang(servers, hung, f"{mine}-hanging-id")
    with server.events(f"/topics?search={mine}&waiting=1") as partitions, server.events("/") as overviews:
        document = until(partitions, lambda found: found["total"] == 2)
        rows = {row["topic"]: row for row in document["rows"]}
        assert (rows[topic]["transactional_id"], rows[topic]["state"]) == (transactional_id, "Ongoing")
        assert rows[hung]["is_orphan"]
        document = until(overviews, lambda found: found["rates"] is not None and found["doctor"] is not None)
        found = next(finding for finding in document["doctor"]["findings"] if hung in finding["summary"])
        assert (found["severity"], found["check"]) == ("problem", "hanging")
        assert f"--bootstrap {servers}" in found["command"]
        producer.commit_transaction(TIMEOUT_S)
        document = until(partitions, lambda found: found["total"] == 1)
        assert document["rows"][0]["topic"] == hung
        # On a busy machine the last count may be too old to be shown.
        until(overviews, lambda found: found["rates"] is not None and any(found["rates"]["commits"]))
    [row] = server.document(f"/txns?search={transactional_id}")["rows"]
    assert row["state"] == "CompleteCommit"
    [partition] = server.document(f"/topics?search={topic}-0")["rows"]
    assert (partition["last_stable_offset"], partition["high_watermark"], partition["waiting"]) == (2, 2, 0)
