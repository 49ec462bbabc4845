"""The sink on newer versions of PySpark than the one it is developed with, each in an environment of its own.

Spark's Kafka source is not published for them, so the rows come from a source that is built into Spark. `make
test-engines` installs one version; `python -m scripts.setup_python pyspark VERSION` installs others, which are tested
too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing import Broker
from tests.e2e.engines.rate_job import COMMITTED, WRITTEN, Plan
from tests.e2e.engines.rate_run import Job, environment
from tests.e2e.spark.streams import Lines, create_topic, is_free, values
from tests.engines.java import OLDEST_JAVA, ROOT, java_home

pytestmark = pytest.mark.timeout(900)

NEWEST = "4.3.0"
FOUND = {path.name.removeprefix("pyspark-") for path in (ROOT / ".tools").glob("pyspark-*")}
BATCHES, ROWS = 5, 500


@pytest.fixture(params=sorted({NEWEST} | FOUND))
def pyspark(request: pytest.FixtureRequest) -> tuple[str, Path]:
    version: str = request.param
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    home = ROOT / ".tools" / f"pyspark-{version}"
    if not (home / "complete").exists():
        pytest.skip(f"no PySpark {version} in {home}; `make test-engines` installs it where it can be had")
    return version, home / "bin" / "python"


@pytest.mark.parametrize("plane", ["jvm", "python"])
def test_rows_are_written_once_although_the_driver_and_python_workers_are_killed(
    pyspark: tuple[str, Path], plane: str, broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    version, python = pyspark
    topic = create_topic(broker.bootstrap_servers, unique("rate"))
    plan = Plan(broker.bootstrap_servers, topic, str(tmp_path), BATCHES, ROWS, plane=plane)
    with Job(python, replace(plan, wait_in_batch=1, wait_at=WRITTEN)) as job:
        assert job.await_event("started")[-1]["pyspark"] == version
        job.await_event("waiting")
        assert not is_free(broker.bootstrap_servers, topic), "the driver is killed in an open transaction"
    with Job(python, replace(plan, wait_in_batch=2, wait_at=COMMITTED)) as job:
        assert [told["outcome"] for told in job.await_event("waiting") if told["event"] == "batch"] == ["committed"] * 2
    with Job(python, replace(plan, wait_in_batch=3, wait_at=WRITTEN)) as job:
        told = job.await_event("waiting")
        assert [(t["batch"], t["outcome"]) for t in told if t["event"] == "batch"] == [(2, "skipped")]
        assert (job.kill_python_workers() > 0) == (plane == "python")
        job.go_on()
        told = job.await_event("finished")
        print(version, told)
        assert [(t["batch"], t["outcome"]) for t in told if t["event"] == "batch"] == [
            (batch, "committed") for batch in range(3, BATCHES)
        ]
    assert values(broker.bootstrap_servers, topic) == sorted(map(str, range(BATCHES * ROWS)))
    assert is_free(broker.bootstrap_servers, topic)


def test_the_format_writes_each_micro_batch_and_each_token_once(
    pyspark: tuple[str, Path], broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    version, python = pyspark
    servers, lines = broker.bootstrap_servers, Lines(tmp_path / "lines")
    topic, checkpoint = create_topic(servers, unique("format")), tmp_path / "checkpoint"

    def run() -> list[list[object]]:
        program = ROOT / "tests/e2e/engines/format_job.py"
        job = [str(part) for part in (python, program, servers, topic, lines.folder, checkpoint)]
        done = subprocess.run(job, env=environment(), capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-6000:]
        told: dict[str, Any] = json.loads(done.stdout)
        assert told["pyspark"] == version
        return list(told["outcomes"])

    lines.add_batch()
    lines.add_batch()
    assert run() == [[0, "committed", 40], [1, "committed", 40]]
    for name in ("1", ".1.crc"):  # The driver died after the commit and before Spark noted it.
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    lines.add_batch()
    assert run() == [[1, "skipped", 0], [2, "committed", 40]]
    assert values(servers, topic) == sorted([*lines.all, "of a frame"])
