"""Brokers for tests with real sockets, and coroutines as tests.

`broker` is one process for the whole session, on disk: tests keep out of each other's way by the names that
`unique` makes. `start_broker` starts others, for tests that kill them or want settings of their own. `apache` is one
Apache Kafka for the whole session, and `target` each kind of Kafka in turn.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from fencepost.testing import Broker
from tests.engines.apache_kafka import ApacheKafka, apache_kafka
from tests.engines.java import start_spark_quickly

# Kafka looks for timed-out transactions every ten seconds, and wants sessions of six: too long to wait for.
IMPATIENT = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.min.session.timeout.ms": "500",
}

# Tests write records of years ago, which a broker that lives for minutes would come to delete.
FOR_EVER = {"log.retention.ms": "-1"}

LOG_TAIL_CHARS = 4000
_numbers = itertools.count(1)


_started: list[Broker] = []


class Target(NamedTuple):
    """A Kafka, and the `transaction.version` that it has."""

    name: str
    servers: str
    version: int


class StartBroker(Protocol):
    def __call__(self, **settings: str) -> Broker: ...


@pytest.fixture(scope="session", autouse=True)
def quick_spark() -> None:
    start_spark_quickly()


@pytest.fixture(scope="session")
def broker_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of `broker`."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def broker(broker_data: Path) -> Iterator[Broker]:
    with Broker(data=broker_data, settings=IMPATIENT | FOR_EVER) as broker:
        _started.append(broker)
        yield broker


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """Leave its `transaction.version` as you found it."""
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
        # As many as a test needs; fifty take their time.
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        **FOR_EVER,
    }
    with apache_kafka(settings, secured=True) as kafka:
        yield kafka


@pytest.fixture(
    scope="session",
    params=[
        "fencepost TV2",
        "fencepost TV1",
        pytest.param("apache TV2", marks=pytest.mark.java),
        pytest.param("apache TV1", marks=pytest.mark.java),
    ],
)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """For what has to work on all of them. pytest runs all tests with one of them before it goes on to the next."""
    product, _, version = request.param.partition(" TV")
    if product == "fencepost":
        settings = IMPATIENT | FOR_EVER | {"transaction.version": version}
        with Broker(data=tmp_path_factory.mktemp("data"), settings=settings) as broker:
            _started.append(broker)
            yield Target(request.param, broker.bootstrap_servers, int(version))
            _started.remove(broker)
        return
    kafka = request.getfixturevalue("apache")
    if version == "2":  # As it comes.
        yield Target(request.param, kafka.bootstrap_servers, 2)
        return
    kafka.use_transaction_version(1)
    try:
        yield Target(request.param, kafka.bootstrap_servers, 1)
    finally:
        kafka.use_transaction_version(2)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker on a data folder of its own; `_` in a setting's name stands for `.`."""
    before = len(_started)
    with ExitStack() as running:

        def start(**settings: str) -> Broker:
            given = {name.replace("_", "."): value for name, value in settings.items()}
            data = tmp_path / f"data-{next(_numbers)}"
            broker = running.enter_context(Broker(data=data, settings=IMPATIENT | given))
            _started.append(broker)
            return broker

        yield start
    del _started[before:]


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """A name that no other test of the session has: `unique("orders")` is `orders-17`."""
    return lambda word: f"{word}-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what the brokers had to say."""
    report = yield
    if report.failed:
        for broker in _started:
            report.sections.append((f"Broker at {broker.bootstrap_servers}", broker.log[-LOG_TAIL_CHARS:]))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
