"""A Spark standalone cluster on this machine: a master and two workers, on hosts of their own as Spark sees it.

Spark runs a speculative copy only on another host than the original, so one worker is 127.0.0.1, the other 127.0.0.2.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.apache_kafka import free_ports
from tests.support.java import OLDEST_JAVA, java_home

START_TIMEOUT_S = 90.0
HOSTS = ("127.0.0.1", "127.0.0.2")
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Yields the address for `master`. Skips where there is no PySpark, no Java, or no second address."""
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    home = java_home()
    if home is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    if not _is_ours(HOSTS[1]):
        pytest.skip(f"{HOSTS[1]} is not an address of this machine")
    spark_home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(spark_home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "SPARK_NO_DAEMONIZE": "1",
    }
    (port,) = free_ports(1)
    address = f"spark://{HOSTS[0]}:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as running:

        def start(name: str, *arguments: str | Path) -> Path:
            path = folder / f"{name}.log"
            command = [spark_home / "bin" / "spark-class", *arguments, "--webui-port", "0"]
            with path.open("wb") as log:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            running.callback(process.wait)
            running.callback(process.kill)
            return path

        master = start("master", f"{deploy}.master.Master", "--host", HOSTS[0], "--port", str(port))
        # A worker that finds no master waits for some seconds before it tries again.
        _wait_for(master, "I have been elected leader")
        for host in HOSTS:
            size = ("--cores", "2", "--memory", "1g", "--work-dir", folder / host)
            start(f"worker-{host}", f"{deploy}.worker.Worker", "--host", host, *size, address)
        yield address


def _is_ours(host: str) -> bool:
    with suppress(OSError), socket.socket() as tried:
        tried.bind((host, 0))
        return True
    return False


def _wait_for(log: Path, words: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"{log.name}:\n{log.read_text(errors='replace')[-4000:]}"
        time.sleep(0.05)
