"""The pytest fixtures of Fencepost.

`fencepost_broker` is a broker in memory for one test; `fencepost_broker_factory` starts as many as a test
needs, on disk too; `fencepost_session_broker` is one broker in memory for all tests that ask for it. Each has its own
port and process, so tests may run side by side (pytest-xdist). The report of a failed test shows the steps of the
transactions of its brokers during the test. The traceback of an error of this package ends at the line of the test
that caused it; `--full-trace` shows the rest.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing.broker import Broker

PACKAGE = Path(__file__).resolve().parents[1]
MOST_LINES = 200
_BEGAN = pytest.StashKey[str]()


class BrokerFactory:
    """Starts a broker with the arguments of `fencepost.testing.Broker`; all are stopped after the test."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self.started: list[Broker] = []

    def __call__(self, **arguments: Any) -> Broker:
        broker = Broker(**{"log_txns": True, **arguments})
        self.started.append(broker)
        return self._running.enter_context(broker)


@pytest.fixture
def fencepost_broker() -> Iterator[Broker]:
    """A real Kafka broker in memory: `fencepost_broker.bootstrap_servers`."""
    with Broker(log_txns=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def fencepost_session_broker() -> Iterator[Broker]:
    """One broker in memory for the whole session: tests must use different topics, groups and transactional ids."""
    with Broker(log_txns=True) as broker:
        yield broker


@pytest.fixture
def fencepost_broker_factory() -> Iterator[BrokerFactory]:
    """Starts a broker with the arguments of `fencepost.testing.Broker`; all are stopped after the test."""
    with ExitStack() as running:
        yield BrokerFactory(running)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # In the format of the log's timestamps, so that the two can be compared.
    item.stash[_BEGAN] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, None]:
    """Add the transaction log of its brokers to the report of a failed test, and leave our frames out of it."""
    # The tests of this package itself need them.
    if call.excinfo is not None and item.config.rootpath / "src" not in PACKAGE.parents:
        for entry in call.excinfo.traceback:
            if PACKAGE in Path(entry.path).parents:
                entry.frame.f_globals["__tracebackhide__"] = says_it_all
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for broker in _brokers_of(item):
            if lines := lines_since(broker.txn_log, item.stash.get(_BEGAN, "")):
                report.sections.append((f"Transactions at {broker.bootstrap_servers}", "\n".join(lines)))


def says_it_all(error: pytest.ExceptionInfo[BaseException] | None) -> bool:
    """Whether the message of an error is enough. If not, a bug of this package may be behind it."""
    return error is not None and (type(error.value).__module__.startswith("fencepost.") or error.type is TimeoutError)


def _brokers_of(item: pytest.Item) -> list[Broker]:
    """The brokers that the test asked for, also through fixtures of its own that give a `Broker`.

    An argument may be anything. `isinstance` would believe its `__class__`, which a mock makes up.
    """
    given = getattr(item, "funcargs", {}).values()
    found = [each for each in given if issubclass(type(each), Broker)]
    for factory in given:
        if issubclass(type(factory), BrokerFactory):
            found += factory.started
    return [broker for broker in dict.fromkeys(found) if broker.port]


def lines_since(lines: list[str], began: str) -> list[str]:
    """The lines of a log that are not older than `began`; of very many, the last."""
    found = [line for line in lines if line >= began]
    left_out = len(found) - MOST_LINES
    return found if left_out <= 0 else [f"({left_out} earlier lines are left out)", *found[-MOST_LINES:]]
