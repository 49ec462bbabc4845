"""The sink on a Spark cluster whose executors die, and whose tasks run twice at the same time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from fencepost.client.admin.partitions import end_offset
from fencepost.client.client import KafkaClient
from fencepost.testing import Broker
from tests.e2e.spark.cluster_job import PARTITIONS, ROWS
from tests.e2e.spark.streams import PLANE, create_topic, is_free, read, wait_for
from tests.engines.spark_cluster import spark_cluster

pytestmark = [
    pytest.mark.engines,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("plane"),
]

START_TIMEOUT_S = 180.0


class Job:
    """A driver on the cluster. `start` starts a scenario, `result` waits for its outcome."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def start(self, **order: str) -> None:
        _pipe(self._process.stdin).write(json.dumps(order) + "\n")
        _pipe(self._process.stdin).flush()

    def result(self) -> dict[str, object]:
        line = _pipe(self._process.stdout).readline()
        assert line, self._log.read_text()[-4000:]
        found: dict[str, object] = json.loads(line)
        return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("cluster")
    with spark_cluster(folder) as master, (folder / "driver.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("cluster_job.py"), master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield Job(process, folder / "driver.log")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def topic(broker: Broker, unique: Callable[[str], str]) -> str:
    return create_topic(broker.bootstrap_servers, unique("cluster"), PARTITIONS)


def order(broker: Broker, topic: str, folder: Path, scenario: str) -> dict[str, str]:
    where = {"servers": broker.bootstrap_servers, "topic": topic, "transactional_id": topic, "folder": str(folder)}
    return {"scenario": scenario, "plane": PLANE.get(), **where}


def wait_until_written(broker: Broker, topic: str, folder: Path) -> None:
    """Wait until the last task has written something, and tell the task so."""
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        wait_for(lambda: end_offset(client, topic, PARTITIONS - 1, read_committed=False) > 0, START_TIMEOUT_S)
    (folder / "written").touch()


def assert_exactly_once(broker: Broker, topic: str) -> None:
    found = sorted(int((record.value or b"").split()[0]) for record in read(broker.bootstrap_servers, topic))
    assert found == list(range(ROWS))
    assert is_free(broker.bootstrap_servers, topic)


def test_copies_of_slow_tasks_wait_or_take_over_and_nothing_is_doubled(
    job: Job, broker: Broker, topic: str, tmp_path: Path
) -> None:
    job.start(**order(broker, topic, tmp_path, "speculation"))
    wait_until_written(broker, topic, tmp_path)
    assert job.result() == {"attempts": 1}, "a copy does no harm"
    assert {"2.1", "3.1"} <= {path.name for path in tmp_path.iterdir()}, "both slow tasks had copies"
    assert_exactly_once(broker, topic)


def test_an_executor_that_dies_after_its_task_wrote_costs_an_attempt(
    job: Job, broker: Broker, topic: str, tmp_path: Path
) -> None:
    job.start(**order(broker, topic, tmp_path, "killed after a write"))
    wait_until_written(broker, topic, tmp_path)
    assert job.result() == {"attempts": 2}
    assert (tmp_path / "killed").exists()
    assert_exactly_once(broker, topic)


def test_two_outputs_come_from_one_computation_though_an_executor_dies_between_them(
    job: Job, broker: Broker, topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    audit = create_topic(broker.bootstrap_servers, unique("audit"), PARTITIONS)
    job.start(**order(broker, topic, tmp_path, "two outputs"), audit=audit)
    assert job.result() == {"attempts": 2}
    refunds, audited = (
        sorted(record.value or b"" for record in read(broker.bootstrap_servers, name)) for name in (topic, audit)
    )
    assert len(refunds) == ROWS
    assert refunds == audited
