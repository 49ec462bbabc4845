"""The sink with Spark Connect: foreachBatch functions run beside the server, without a SparkContext."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.testing import Broker
from tests.e2e.spark.streams import PLANE, Lines, create_topic, is_free, settings, values, wait_for, written
from tests.engines.java import OLDEST_JAVA, java_home

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.engines]

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server of its own, as a cluster would have one."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture
def strict_remote(tmp_path: Path) -> Iterator[str]:
    """A server that gives up a job instead of running a stage again."""
    with connect_server(tmp_path, **{"spark.stage.maxConsecutiveAttempts": "1"}) as address:
        yield address


@contextmanager
def connect_server(folder: Path, **more: str) -> Iterator[str]:
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `make setup` installs it")
    pytest.importorskip("grpc", reason="no grpcio, which Spark Connect wants; `make setup` installs it")
    if java_home() is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        **more,
    }
    arguments = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(home / "bin" / "spark-submit"), "--class", service, *arguments, "spark-internal"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    log_path = folder / "server.log"
    with log_path.open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def is_up() -> bool:
        assert server.poll() is None, log_path.read_text()[-4000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(is_up, 90)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.fixture(autouse=True)
def python_plane() -> Iterator[None]:
    """With Spark Connect tasks run in Python workers."""
    before = PLANE.set("python")
    yield
    PLANE.reset(before)


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


def run_job(
    remote: str, lines: Lines, checkpoint: Path, given: object, *more: Path | str
) -> subprocess.CompletedProcess[str]:
    job = Path(__file__).with_name("connect_job.py")
    command = [sys.executable, str(job), remote, str(lines.folder), str(checkpoint), json.dumps(given), *map(str, more)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_a_stream_is_written_once_over_restarts_and_reruns(
    remote: str, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    topic = create_topic(servers, unique("connect"), 2)
    given = settings(servers, unique("connect"), topic=topic, fencepost_checkpoint_location=f"file:{checkpoint}")
    lines.add_batch()
    lines.add_batch()

    # Stopped in the middle of the first micro-batch: it is aborted, and no reader waits for it.
    job = run_job(remote, lines, checkpoint, given, tmp_path / "reached")
    assert job.returncode == 0, job.stdout + job.stderr
    assert written(servers, topic) > 0
    wait_for(lambda: is_free(servers, topic))
    assert values(servers, topic) == []

    job = run_job(remote, lines, checkpoint, given)
    assert job.returncode == 0, job.stdout + job.stderr
    expected = sorted(lines.all + [line.upper() for line in lines.all])
    assert values(servers, topic) == expected
    before = written(servers, topic)

    # The driver died after the commit and before Spark noted it: Spark runs the micro-batch again.
    for note in ("1", ".1.crc"):
        (checkpoint / "commits" / note).unlink(missing_ok=True)
    # Read through the session this time, like a checkpoint on another file system.
    job = run_job(remote, lines, checkpoint, {**given, "fencepost.checkpoint.location": str(checkpoint)})
    assert job.returncode == 0, job.stdout + job.stderr
    assert (checkpoint / "commits" / "1").exists()
    assert written(servers, topic) == before
    assert is_free(servers, topic)


def test_a_sink_without_the_checkpoint_location_names_the_setting_it_needs(
    remote: str, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("connect"), 1)
    given = settings(servers, unique("connect"), topic=topic)
    lines.add_batch()
    job = run_job(remote, lines, tmp_path / "checkpoint", given)
    assert job.returncode == 1
    assert "hint: set fencepost.checkpoint.location to the query's checkpointLocation" in job.stdout
    assert written(servers, topic) == 0


@pytest.mark.parametrize("where", ["", "stream"])
def test_a_frame_behind_a_shuffle_is_refused_because_a_repeated_stage_would_not_be_seen(
    remote: str, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path, where: str
) -> None:
    servers, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    topic = create_topic(servers, unique("connect"), 1)
    given = settings(servers, unique("connect"), topic=topic, fencepost_checkpoint_location=f"file:{checkpoint}")
    lines.add_batch()
    job = run_job(remote, lines, checkpoint, given, "", "2", where)
    assert job.returncode == 1
    assert "hint: start the Spark Connect server with spark.stage.maxConsecutiveAttempts=1" in job.stdout
    assert written(servers, topic) == 0


def test_a_batch_of_a_stream_with_a_shuffle_is_not_run_again_before_the_query_is(
    strict_remote: str, broker: Broker, unique: Unique, lines: Lines, tmp_path: Path
) -> None:
    servers, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    topic = create_topic(servers, unique("connect"), 1)
    given = settings(servers, unique("connect"), topic=topic, fencepost_checkpoint_location=f"file:{checkpoint}")
    lines.add_batch()
    job = run_job(strict_remote, lines, checkpoint, given, "", "2", "broken")
    assert job.returncode == 1
    assert "cannot be run again in this run of the query: as if a task were lost" in job.stdout
    assert "hint: start the query again" in job.stdout
    assert values(servers, topic) == []

    job = run_job(strict_remote, lines, checkpoint, given, "", "2", "stream")
    assert job.returncode == 0, job.stdout + job.stderr
    assert values(servers, topic) == sorted(lines.all + [line.upper() for line in lines.all])
