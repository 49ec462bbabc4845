"""A pytest plugin that notes what became of each test with a client or a tool, for docs/compatibility.md.

    pytest -p tests.e2e.clients.compatibility --compatibility FILE ...

A test belongs to the client that its name or its file names, and to every tool of Apache Kafka's that it ran.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.engines import apache_kafka

# As tests name them, and as the page does.
CLIENTS = {
    "franz_go": "franz-go",
    "kafkajs": "kafkajs",
    "java": "java",
    "kafka_python": "kafka-python",
    "aiokafka": "aiokafka",
    "confluent": "confluent-kafka",
    # The consumer protocol's tests use this client, except where they say otherwise.
    "consumer_protocol": "confluent-kafka",
}
TOOLS_ONLY = ("test_kafka_tools", "test_admin_tools")


def client_of(nodeid: str) -> str | None:
    """The client that a test is about."""
    if any(name in nodeid for name in TOOLS_ONLY):
        return None
    file, _, test = nodeid.rpartition("::")
    for text in (test, Path(file).stem):
        for word, client in CLIENTS.items():
            if word in text.replace("-", "_"):
                return client
    return None


def claim_of(nodeid: str) -> str:
    """What a test claims, in words; of its parameters those that are not the client."""
    name, _, parameters = nodeid.rpartition("::")[2].partition("[")
    claim = name.removeprefix("test_").replace("_", " ")
    left = [part for part in parameters.rstrip("]").split("-") if part] if "fencepost-" not in parameters else []
    return f"{claim} ({'-'.join(left)})" if left else claim


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compatibility", metavar="FILE", help="write what became of each client's tests, as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    apache_kafka.TOOLS_RUN.clear()
    try:
        return (yield)
    finally:
        item.user_properties.append(("tools", sorted(set(apache_kafka.TOOLS_RUN))))


def pytest_configure(config: pytest.Config) -> None:
    # Workers of xdist hand their reports to the process that started them.
    if config.getoption("--compatibility") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(Path(config.getoption("--compatibility"))))


class Collector:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._results: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A failure in any phase counts; else the call, or what skipped it before.
        if report.when != "call" and report.passed:
            return
        known = self._results.get(report.nodeid)
        if known is not None and known["result"] == "failed":
            return
        properties = dict(report.user_properties)
        self._results[report.nodeid] = {
            "test": report.nodeid,
            "client": client_of(report.nodeid),
            "claim": claim_of(report.nodeid),
            "version": properties.get("version", ""),
            "tools": properties.get("tools", []),
            "result": report.outcome,
            "reason": reason_of(report),
        }

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(list(self._results.values()), indent=1) + "\n")


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return ""
