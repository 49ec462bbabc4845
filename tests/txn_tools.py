"""What the tests of `fencepost txn` and `fencepost group` share: how to call them, and producers to look at."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.cli import main
from fencepost.client.admin.offsets import commit_offsets as commit
from fencepost.client.client import KafkaClient
from fencepost.testing import Broker
from tests.engines.apache_kafka import apache_kafka
from tests.readers.reading import TIMEOUT_S

# Without verification (KIP-890), a write of the older protocol makes a transaction that no coordinator knows.
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
BOTH = ["fencepost", pytest.param("apache", marks=pytest.mark.java)]


class Result(NamedTuple):
    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@contextmanager
def cluster(name: str, settings: Mapping[str, str] = SETTINGS) -> Iterator[str]:
    """The bootstrap servers of one of `BOTH`."""
    if name == "apache":
        with apache_kafka(settings) as kafka:
            yield kafka.bootstrap_servers
    else:
        with Broker(settings=settings) as broker:
            yield broker.bootstrap_servers


def runner(servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *command: str) -> Run:
    """Calls `fencepost COMMAND ...` on a cluster."""
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", servers)
    # pytest's workers have one, on which the layout of tables would depend.
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        exit_code = main([*command, *arguments])
        shown = capsys.readouterr()
        # The tests do not depend on line breaks.
        return Result(exit_code, " ".join(shown.out.split()), shown.err)

    return run


def create_topic(servers: str, name: str, partitions: int = 2) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    return name


def producer_of(servers: str, transactional_id: str, timeout_ms: int = 600_000, client_id: str = "tools") -> Producer:
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, "client.id": client_id}
    producer = Producer(settings | {"transaction.timeout.ms": timeout_ms, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, value: str, partitions: tuple[int, ...] = (0, 1)) -> None:
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def commit_offsets(servers: str, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets of a group without members; waits until the coordinator is there."""
    with KafkaClient({"bootstrap.servers": servers}) as client:
        commit(client, group_id, offsets)
