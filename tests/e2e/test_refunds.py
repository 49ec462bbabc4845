"""The refunds pipeline on Spark, as a command: exactly once under crashes, and Spark's own sink is not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from fencepost.child import child_environment
from fencepost.spark.connector import connector_jars
from fencepost.testing import Broker
from tests.command_line import run_fencepost, start_fencepost
from tests.engines.java import OLDEST_JAVA, ROOT, java_home

TIMEOUT_S = 400.0  # A run takes less than a minute on an idle machine.

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 30)]
needs_spark = pytest.mark.java


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Needs Spark and Java. Fails if the command leaves a file in the temporary folder, or a process."""
    pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    if connector_jars() is None:
        pytest.skip("no jars of Spark's Kafka connector; `make setup` fetches them")
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert descendants(tmp_path) == []


def descendants(folder: Path) -> list[str]:
    """The processes that use this temporary folder, whatever their parents are by now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not what():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.05)


def play(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = run_fencepost("demo", "refunds", *arguments, "--json", timeout_s=TIMEOUT_S)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@needs_spark
def test_the_pipeline_is_exactly_once_although_driver_and_broker_are_killed(engines: Path) -> None:
    done = run_fencepost("demo", "refunds", "--settlements", "2000", "--seed", "7", timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "exactly once: yes"
    assert "\x1b" not in done.stdout
    half_written = re.search(r"kill -9 of the driver, in micro-batch 1: (\d+) refunds are in the log", done.stderr)
    assert half_written, done.stderr
    assert int(half_written[1]) > 100
    assert "run 3: micro-batch 2 is in Kafka already: skipped" in done.stderr
    assert "kill -9 of the broker, in micro-batch 3" in done.stderr
    assert re.search(r"refunds-emitted +2000 +2000 +0 +0 +0\n", done.stdout)


@needs_spark
@pytest.mark.engines
def test_the_same_job_with_sparks_own_sink_is_not(engines: Path) -> None:
    done = run_fencepost("demo", "refunds", "--settlements", "2000", "--sink", "spark", timeout_s=TIMEOUT_S)
    assert done.returncode == 1
    said = re.fullmatch(
        r"exactly once: no \(([\d,]+) duplicates, ([\d,]+) refunds without an audit row\)", done.stdout.splitlines()[-1]
    )
    assert said, done.stdout + done.stderr
    duplicates, alone = (int(number.replace(",", "")) for number in said.groups())
    # One topic has the half-written micro-batch twice. Both topics have the one that Spark did not note twice.
    assert alone > 100
    assert duplicates > 2 * alone
    assert "has 2 refunds" in done.stdout


@needs_spark
@pytest.mark.engines
def test_it_runs_on_a_cluster_that_others_use_and_leaves_it_running(engines: Path) -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        code, document, said = play("--bootstrap", servers, "--settlements", "500", "--sink", "spark", "--no-crashes")
        assert code == 0, said
        assert document["exactly_once"] is True, "Spark's own sink does well where nothing happens"
        assert len(document["sections"][0]["checks"]) == 6
        there = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
        assert set(document["topics"]) <= there.keys()
        assert f"new topics on {servers}: {', '.join(document['topics'])}" in said


@needs_spark
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("writing", signal.SIGINT),
        pytest.param("starting Spark", signal.SIGINT, marks=pytest.mark.engines),
        pytest.param("micro-batch 0 committed", signal.SIGTERM, marks=pytest.mark.engines),
    ],
)
def test_ctrl_c_leaves_nothing_behind(engines: Path, moment: str, number: int) -> None:
    with start_fencepost("demo", "refunds", "--settlements", "500") as process:
        assert process.stderr is not None
        while moment not in (line := process.stderr.readline()):
            assert line, "the demo ended before it came to this"
        process.send_signal(number)
        process.send_signal(number)  # As a user who presses Ctrl-C twice.
        assert process.wait(60) == 130
        assert process.stderr.read().split()[-1] == "interrupted"


@needs_spark
@pytest.mark.engines
def test_a_demo_that_is_killed_takes_its_driver_along(engines: Path) -> None:
    with start_fencepost("demo", "refunds", "--settlements", "500") as process:
        wait_for(lambda: any("org.apache.spark.deploy.SparkSubmit" in line for line in descendants(engines)))
        process.kill()
    wait_for(lambda: not descendants(engines))
    for path in engines.iterdir():  # All processes that could have removed them were killed.
        shutil.rmtree(path)


@needs_spark
@pytest.mark.engines
def test_drivers_and_workers_that_are_killed_at_random_lose_nothing_and_double_nothing(engines: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/crash_spark.py", "--rounds", "2", "--seed", "12", "--settlements", "600"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=child_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "nothing lost, nothing doubled\n"
    assert done.stderr.startswith("seed 12: 2 rounds")
    assert "2 drivers and 1 Python workers were killed" in done.stderr


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("/nowhere", "error: Spark needs Java 17 or newer, and JAVA_HOME=/nowhere contains no working Java"),
        (None, "error: Spark needs Java 17 or newer, and there is no java on the PATH"),
    ],
)
def test_without_java_one_line_says_so(
    home: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    done = run_fencepost("demo", "refunds")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == said
    assert done.stderr.splitlines()[2].startswith("hint: install a JDK")


def test_without_pyspark_one_line_says_what_to_install(tmp_path: Path) -> None:
    # -S leaves out site-packages. The packages that the command itself needs are added again.
    for name in ("click", "rich", "confluent_kafka"):
        package = next(Path(p) / name for p in sys.path if (Path(p) / name).is_dir())
        (tmp_path / name).symlink_to(package)
    for needed in (*package.parent.glob("pygments"), *package.parent.glob("*.libs")):
        (tmp_path / needed.name).symlink_to(needed)
    environment = child_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-S", "-m", "fencepost", "demo", "refunds"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == (
        "error: not installed: pyspark, pyarrow, pandas, numpy\n\nhint: pip install 'fencepost[demo,spark-local]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--conf", "nonsense"], "--conf nonsense is not NAME=VALUE"), (["--settlements", "5"], "5 is not in the range")],
)
def test_wrong_use_is_refused(arguments: list[str], said: str) -> None:
    done = run_fencepost("demo", "refunds", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_cluster_that_does_not_answer_is_named(engines: Path) -> None:
    done = run_fencepost("demo", "refunds", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no broker answers at 127.0.0.1:1")
