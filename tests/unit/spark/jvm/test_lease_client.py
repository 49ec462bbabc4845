"""A task in Spark's JVM and its driver: messages about leases, a task that fails early, a copy of a task."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.client.transaction import ProducerIdentity
from fencepost.spark.driver.planes import plan_as_json
from fencepost.spark.jvm.jar import jar_path
from fencepost.spark.lease.client import LeaseAddress, LeaseClient
from fencepost.spark.lease.messages import Finished, TaskAttempt, TaskResult
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import make_tls
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.topics import PinnedTopic
from tests.engines.java import run_java
from tests.unit.spark.lease.micro_batch import WAIT_S, eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("LeaseTask.java")
WITHIN_MS = 27_000


def run_task(address: LeaseAddress, what: str) -> list[str]:
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    try:
        class_path = [str(jar_path()), str(Path(pyspark.__file__).parent / "jars" / "*")]
    except FileNotFoundError as e:
        pytest.skip(str(e))
    arguments = [address.host, str(address.port), address.token, what]
    arguments += [address.fingerprint] if address.fingerprint else []
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
    topics = {"refunds": PinnedTopic(bytes(16), 1)}
    plan = WritePlan(settings, identity, 13, address, 1, "refunds", topics, "none", 1_000_000, "")
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
        said, took = run_task(LeaseAddress("127.0.0.1", silent.getsockname()[1], "token", ""), "killed")
    assert said == "no input for task 1"
    [took_ms] = re.findall(r"after (\d+) ms", took)
    assert int(took_ms) < 9_000, "the task would wait ten seconds for the driver's greeting"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_task_for_which_the_driver_has_no_room_waits_until_another_is_done(
    tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        LeaseServer("127.0.0.1", max_connections=1, tls=make_tls() if tls else None) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        address = open_write(server)
        with LeaseClient(address, TaskAttempt(1, 7, 7)) as holder:
            waiting = pool.submit(run_task, address, "writes")
            assert eventually(lambda: "is turned away" in caplog.text)
            assert not waiting.done()
            holder.done({})
        assert waiting.result(WAIT_S)[-1] == "23"


def test_a_task_does_not_tell_its_token_to_a_driver_with_another_certificate() -> None:
    with LeaseServer("127.0.0.1", tls=make_tls()) as server:
        address, other = open_write(server), make_tls().fingerprint
        said = "\n".join(run_task(address._replace(fingerprint=other), "writes"))
    assert f"has the fingerprint {address.fingerprint}, expected {other}" in said


OWNED = TaskResult(1, 0, 1, (("refunds", 0, 3),), ())


def write_as_the_owner(address: LeaseAddress) -> None:
    """An attempt that writes the three records of `OWNED`. The copy of it is task 0, which is its first attempt."""
    with LeaseClient(address, TaskAttempt(1, 0, 1), 1) as owner:
        leases = owner.acquire({("refunds", 0): 3})
        owner.release(leases, 100)
        assert owner.done({("refunds", 0): 3}) == OWNED


@pytest.mark.parametrize("rows", [2, 3])
def test_an_attempt_that_lost_rows_with_its_executor_does_not_dispute_the_result_of_the_owner(
    server: LeaseServer, rows: int
) -> None:
    address = open_write(server)
    write_as_the_owner(address)
    assert run_task(address, f"task-of-{rows}") == ["3 records"]
    assert isinstance(server.finish([OWNED], {1: 1}), Finished)


def test_an_attempt_with_more_rows_than_the_owner_wrote_disputes_its_result(server: LeaseServer) -> None:
    address = open_write(server)
    write_as_the_owner(address)
    reason = "an earlier attempt at input partition 0 wrote 3 records, but there are 4 rows"
    assert run_task(address, "task-of-4") == [reason]
    assert server.broken is not None
    assert reason in server.broken.reason


def test_a_task_whose_jvm_reaches_no_broker_gives_up_soon_and_names_the_command_to_try(server: LeaseServer) -> None:
    """The lease would allow it to try for 27 s."""
    said = run_task(open_write(server), "task-of-1")
    reached_none = r" has reached no broker in 1\d s: no broker can be reached: cannot connect to 127\.0\.0\.1:9: "
    assert re.search(reached_none, said[0])
    assert "hint: let executors connect to the brokers; `fencepost spark check` tries it" in said[-1]
    assert server.broken is not None
    assert not server.broken.is_fatal, "a broker may come back, so the driver tries again"
