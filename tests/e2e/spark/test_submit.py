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


def test_client_mode_works_with_the_jar_and_a_fixed_lease_port_and_cluster_mode_is_not_for_python(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create_topic(broker.bootstrap_servers, unique("submit"))
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": topic,
        "topic": topic,
        "fencepost.plane": "jvm",
    }
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
    assert values(broker.bootstrap_servers, topic) == sorted(str(n) for n in range(400))
    assert in_cluster.returncode != 0
    assert "Cluster deploy mode is currently not supported for python" in in_cluster.stdout + in_cluster.stderr
