"""The addresses of partitions and groups as a program asks them: documents, changes as they come, and mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from fencepost.testing import Broker
from tests.command_line import run_fencepost
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import create_topic, producer_of, write
from tests.web_server import WebServer, web_server

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[WebServer]:
    with web_server(broker.bootstrap_servers) as server:
        yield server


@pytest.fixture
def topic(broker: Broker, unique: Unique) -> str:
    return create_topic(broker.bootstrap_servers, unique("watched"), 1)


def test_the_lines_of_a_strip_move_while_it_is_followed(
    broker: Broker, server: WebServer, topic: str, unique: Unique
) -> None:
    producer = producer_of(broker.bootstrap_servers, unique("sink"))
    with server.events(f"/partition/{topic}/0") as events:
        lines = (
            (event.document["last_stable_offset"], [run["kind"] for run in event.document["runs"]]) for event in events
        )
        assert next(lines) == (0, [])
        write(producer, topic, "one", (0,))
        assert (0, ["open"]) in lines
        producer.commit_transaction(TIMEOUT_S)
        assert (2, ["committed", "marker"]) in lines


def test_a_partition_that_is_deleted_while_it_is_followed_becomes_a_problem(
    broker: Broker, server: WebServer, topic: str
) -> None:
    with server.events(f"/partition/{topic}/0") as events:
        assert next(events).name == "document"
        run_fencepost("topic", "delete", topic, "--yes", bootstrap_servers=broker.bootstrap_servers)
        event = next(events)
        assert (event.name, event.document["error"]) == (
            "problem",
            f"topic {topic}: UNKNOWN_TOPIC_OR_PARTITION (3): it does not exist",
        )


def test_mistakes_have_the_status_of_a_mistake(server: WebServer, topic: str) -> None:
    asked = {
        f"/partition/{topic}/7": (404, "the topic has 1 partition$"),
        f"/partition/{topic}x/0": (404, "it does not exist"),
        f"/partition/{topic}/one": (404, "one is no partition"),
        f"/partition/{topic}/0?offset=last": (400, "offset=last is no number"),
        f"/partition/{topic}/0?time=noon": (400, "time=noon is no time"),
        "/group/missing%2F%3Cb%3E": (404, "there is no group missing/<b>"),
    }
    for path, (status, text) in asked.items():
        answer = server.get(path)
        assert answer.status == status, path
        assert re.search(text, answer.document["error"])
