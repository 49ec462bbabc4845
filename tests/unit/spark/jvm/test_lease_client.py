"""A task in Spark's JVM and its driver: the messages about leases, and a task that fails before its first row."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.client.transaction import ProducerIdentity
from fencepost.spark.driver.planes import plan_as_json
from fencepost.spark.jvm.jar import jar_path
from fencepost.spark.lease.client import LeaseAddress
from fencepost.spark.lease.messages import Finished, TaskResult
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.task.plan import WritePlan
from tests.engines.java import run_java

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("LeaseTask.java")
WITHIN_MS = 27_000


def run_task(address: LeaseAddress, what: str) -> list[str]:
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    try:
        class_path = [str(jar_path()), str(Path(pyspark.__file__).parent / "jars" / "*")]
    except FileNotFoundError as e:
        pytest.skip(str(e))
    arguments = (address.host, str(address.port), address.token, what)
    return run_java(PROGRAM, *arguments, class_path=os.pathsep.join(class_path)).splitlines()


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with LeaseServer("127.0.0.1") as running:
        yield running


def open_write(server: LeaseServer) -> LeaseAddress:
    """One open transaction, whose first partition has sequences from 0 on."""
    table = LeaseTable(lease_timeout_ms=30_000, first_touches_at_once=None)
    address = server.open(table, lambda partitions: None)
    identity = ProducerIdentity("payments", 1, 0)
    settings = {"bootstrap.servers": "127.0.0.1:9"}
    plan = WritePlan(settings, identity, 13, address, 1, None, {}, "none", 1_000_000, "")
    server.offer(1, plan_as_json(plan))
    return address


def test_driver_and_task_understand_each_others_leases_of_several_topics(server: LeaseServer) -> None:
    first, second, records = run_task(open_write(server), "writes")
    granted = {"audit.log_1-0 0+5", "audit.log_1-12 0+7", "refunds-3 0+9"}
    assert set(first.removesuffix("; ").split("; ")) == {f"{lease} within {WITHIN_MS}" for lease in granted}
    assert second == f"refunds-3 9+2 within {WITHIN_MS}; "
    assert records == "23"
    counts = (("audit.log_1", 0, 5), ("audit.log_1", 12, 7), ("refunds", 3, 11))
    verdict = server.finish([TaskResult(1, 0, 1, counts, ())], {1: 1})
    assert isinstance(verdict, Finished)
    assert verdict.counts == {(topic, partition): count for topic, partition, count in counts}


def test_the_driver_meets_tasks_that_fail_before_their_first_row(server: LeaseServer) -> None:
    said = run_task(open_write(server), "fails")
    assert said == ["no input for task 1", "no input for task 2"]
    assert server.broken is not None, "two attempts with the same number: Spark runs the stage again"
    assert "Spark runs the stage of input partition 0 of write 1 again" in server.broken.reason


def test_a_killed_task_does_not_wait_for_a_driver_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        said = run_task(LeaseAddress("127.0.0.1", silent.getsockname()[1], "token", ""), "killed")
        took_s = time.monotonic() - began
    assert said == ["no input for task 1"]
    assert took_s < 9.0, "the task would wait ten seconds for the driver's greeting"
