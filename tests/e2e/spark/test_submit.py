"""spark-submit to a standalone cluster of two workers, as the deployment guide describes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.spark.jvm.jar import jar_path
from fencepost.testing import Broker
from tests.e2e.spark.streams import create_topic, values
from tests.engines.apache_kafka import held_ports
from tests.engines.java import java_home
from tests.engines.spark_cluster import spark_cluster

pytestmark = [pytest.mark.java, pytest.mark.engines, pytest.mark.timeout(400)]
JOB = Path(__file__).with_name("submit_job.py")
ROWS = sorted(str(n) for n in range(400))


def submit(master: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    conf = ("--conf", "spark.ui.enabled=false", "--conf", "spark.cores.max=4")
    command = [home / "bin" / "spark-submit", "--master", master, *conf, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


@pytest.fixture
def settings(broker: Broker, unique: Callable[[str], str]) -> dict[str, str]:
    topic = create_topic(broker.bootstrap_servers, unique("submit"))
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": topic,
        "topic": topic,
        "fencepost.plane": "jvm",
    }


def test_client_mode_works_with_the_jar_and_a_fixed_lease_port_and_cluster_mode_is_not_for_python(
    settings: dict[str, str], tmp_path: Path
) -> None:
    jars = ("--jars", jar_path())
    with spark_cluster(tmp_path) as master, held_ports(1) as [port]:
        settings["fencepost.lease.port"] = str(port)
        address = ("--conf", "spark.driver.host=127.0.0.1")
        done = submit(master, *jars, *address, JOB, json.dumps(settings))
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        assert "problem" not in done.stdout
        assert f"the driver's lease port 127.0.0.1:{port}" in done.stdout
        assert "8 ran in Spark's JVM, and greeted the driver" in done.stdout
        in_cluster = submit(master, "--deploy-mode", "cluster", *jars, JOB, json.dumps(settings))
    assert values(settings["bootstrap.servers"], settings["topic"]) == ROWS
    assert in_cluster.returncode != 0
    assert "Cluster deploy mode is currently not supported for python" in in_cluster.stdout + in_cluster.stderr


@pytest.mark.parametrize("plane", ["jvm", "python"])
def test_a_driver_behind_a_name_with_three_fixed_ports_is_reached_as_behind_the_headless_service_of_the_guide(
    settings: dict[str, str], tmp_path: Path, plane: str
) -> None:
    """Executors get the name, and the driver listens on the address of its pod, on these ports only."""
    with spark_cluster(tmp_path) as master, held_ports(3) as [driver, blocks, leases]:
        settings |= {"fencepost.lease.port": str(leases), "fencepost.plane": plane}
        service = {
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.port": driver,
            "spark.driver.blockManager.port": blocks,
            "spark.port.maxRetries": 0,  # Spark would choose the next port.
        }
        conf = [part for name, value in service.items() for part in ("--conf", f"{name}={value}")]
        done = submit(master, "--jars", jar_path(), *conf, JOB, json.dumps(settings))
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "problem" not in done.stdout
    assert f"the driver's lease port localhost:{leases}" in done.stdout
    where = "Spark's JVM" if plane == "jvm" else "Python workers"
    assert f"8 ran in {where}, and greeted the driver" in done.stdout
    assert values(settings["bootstrap.servers"], settings["topic"]) == ROWS
