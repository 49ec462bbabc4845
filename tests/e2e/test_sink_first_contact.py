"""Executors that cannot reach the brokers, while the driver can: the query fails soon, and says what to check."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.failures import BatchBroken
from fencepost.spark.task import first_contact
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker
from tests.e2e.spark.streams import create_topic
from tests.engines.apache_kafka import held_ports
from tests.engines.sparkless import OUTPUT, Query, sink_of, write_values

HINT = "hint: let executors connect to the brokers; `fencepost spark check` tries it"


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    broker = start_broker()
    create_topic(broker.bootstrap_servers, OUTPUT, 1)
    return broker


def from_an_executor_that_uses(servers: str) -> Callable[[Any, BatchTransaction], None]:
    """Writes a frame by a task that has other addresses of the brokers than the driver."""

    def write(frame: Any, transaction: BatchTransaction) -> None:
        transaction._plan = transaction._plan._replace(settings={"bootstrap.servers": servers})
        write_values(frame, transaction)

    return write


@pytest.mark.parametrize("unreachable", ["bootstrap.servers", "the advertised address"])
def test_a_task_that_reaches_no_broker_gives_up_soon_and_names_its_host_and_the_command_to_try(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreachable: str
) -> None:
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_S", 0.5)
    query = Query(tmp_path / "checkpoint")
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, max_attempts=2)
    began = time.monotonic()
    with held_ports(1) as [closed]:
        wrong = Broker(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{closed}"}, topics={OUTPUT: 1})
        with wrong, pytest.raises(BatchBroken) as failed:
            servers = f"127.0.0.1:{closed}" if unreachable == "bootstrap.servers" else wrong.bootstrap_servers
            query.run(sink, 0, ["a"], from_an_executor_that_uses(servers))
    sink.close()
    assert time.monotonic() - began < 20
    said = str(failed.value)
    assert f"a task on {socket.gethostname()} has reached no broker in " in said
    assert f"cannot connect to 127.0.0.1:{closed}: Connection refused" in said
    assert said.count(HINT) == 1


def test_a_worker_that_has_reached_a_broker_once_waits_for_it(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_S", 0.0)
    query = Query(tmp_path / "checkpoint")
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    assert query.run(sink, 0, ["a"]) == "committed"

    def write(frame: Any, transaction: BatchTransaction) -> None:
        broker.kill()
        restarting = threading.Timer(2, broker.restart)
        restarting.start()
        write_values(frame, transaction)
        restarting.join()

    assert query.run(sink, 1, ["b"], write) == "committed"
    assert sink.recent_progress[-1].attempts == 1
    sink.close()


def test_a_broker_that_comes_back_in_time_costs_a_new_worker_no_attempt(broker: Broker, tmp_path: Path) -> None:
    """The first contact of a worker may fall into the restart of a broker."""
    query = Query(tmp_path / "checkpoint")
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    servers = broker.bootstrap_servers.replace("127.0.0.1", "localhost")  # The worker has no connection yet.

    def write(frame: Any, transaction: BatchTransaction) -> None:
        broker.kill()
        restarting = threading.Timer(2, broker.restart)
        restarting.start()
        from_an_executor_that_uses(servers)(frame, transaction)
        restarting.join()

    assert query.run(sink, 0, ["a"], write) == "committed"
    assert sink.recent_progress[-1].attempts == 1
    sink.close()
