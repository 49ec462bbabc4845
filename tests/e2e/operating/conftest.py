"""One Fencepost broker and one Apache Kafka for all tests of the operator's commands; names keep the tests apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from fencepost.cli import main
from tests.txn_tools import cluster

SETTINGS = {
    # Without verification (KIP-890), a write of the older protocol makes a transaction that no coordinator knows.
    "transaction.partition.verification.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "log.retention.ms": "-1",
}
KINDS = ["fencepost", pytest.param("apache", marks=pytest.mark.java)]


class Result(NamedTuple):
    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents of a command that prints one in each line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture(scope="session", params=KINDS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with cluster(request.param, SETTINGS) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def run(servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`fencepost …` on the cluster."""
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", servers)
    # pytest's workers set it, and the layout of tables depends on it.
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        exit_code = main(list(arguments))
        shown = capsys.readouterr()
        return Result(exit_code, shown.out, shown.err)

    return run
