"""A Spark standalone cluster on this machine: a master and two workers, which Spark takes for two hosts.

Spark runs a speculative copy only on another host than the original, so one worker is 127.0.0.1, the other 127.0.0.2.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.engines.apache_kafka import held_ports
from tests.engines.java import OLDEST_JAVA, java_home

START_TIMEOUT_S = 90.0
HOSTS = ("127.0.0.1", "127.0.0.2")
# An executor with spark.storage.decommission.rddBlocks.enabled logs it when it has moved its cached rows. Then it waits
# for its tasks, and ends.
MOVED = "Finished current round RDD blocks migration"
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """`master` is its address; workers are known by their hosts."""

    def __init__(self, folder: Path, spark_home: Path, environment: Mapping[str, str], port: int) -> None:
        self._port = port
        self.master = f"spark://{HOSTS[0]}:{self._port}"
        self._folder = folder
        self._command = spark_home / "bin" / "spark-class"
        self._environment = dict(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._decommissioned: set[str] = set()

    def start(self) -> None:
        self._start("master", f"{DEPLOY}.master.Master", "--host", HOSTS[0], "--port", str(self._port))
        # A worker that finds no master waits for some seconds before it tries again.
        _wait_for(self._log("master"), "I have been elected leader")
        self.start_workers()

    def start_workers(self) -> None:
        """Start the workers that are not running. One that was decommissioned takes no more work."""
        for host in self._decommissioned.intersection(self._processes):
            self.kill_worker(host)
        self._decommissioned.clear()
        for host in HOSTS:
            if host not in self._processes:
                size = ("--cores", "2", "--memory", "1g", "--work-dir", self._folder / host)
                self._start(host, f"{DEPLOY}.worker.Worker", "--host", host, *size, self.master)

    def await_workers(self) -> None:
        """Wait until the master knows every running worker."""
        for host in HOSTS:
            _wait_for(self._log(host), "Successfully registered with master")

    def executors(self, host: str) -> list[psutil.Process]:
        """The running executors of one worker."""
        # `spark-class` may leave a dead child to the worker that it becomes, which never asks for it.
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._processes[host].pid).children()
            return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        return []

    def kill_worker(self, host: str) -> None:
        """kill -9 of a worker, its executors and their Python workers, as when the machine under them dies."""
        process = self._processes.pop(host)
        below = _descendants(process.pid)
        process.kill()
        process.wait()
        for child in below:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(below, 30)

    def decommission_worker(self, host: str) -> None:
        """As a cloud does that is about to take a machine away. Waits until the newest job has moved cached rows."""
        self._decommissioned.add(host)
        self._processes[host].send_signal(signal.SIGPWR)
        newest = max((self._folder / host).glob("app-*"))
        for log in newest.glob("*/stderr"):
            _wait_for(log, MOVED)

    def stop(self) -> None:
        for host in [host for host in HOSTS if host in self._processes]:
            self.kill_worker(host)
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _start(self, name: str, *arguments: str | Path) -> None:
        command = [self._command, *arguments, "--webui-port", "0"]
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Skips where there is no PySpark, no Java, or no second address."""
    pyspark = pytest.importorskip("pyspark", reason="no PySpark; `uv sync --group engines` installs it")
    home = java_home()
    if home is None:
        pytest.skip(f"no Java {OLDEST_JAVA} or newer; `make setup` says how to get one")
    if not _is_ours(HOSTS[1]):
        pytest.skip(f"{HOSTS[1]} is not an address of this machine")
    spark_home = Path(pyspark.__file__).parent
    local = folder / "local"
    local.mkdir()
    environment = {
        **os.environ,
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(spark_home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SMALL} -Dspark.decommission.enabled=true",
        "SPARK_NO_DAEMONIZE": "1",
        # A killed process cannot remove its files.
        "SPARK_LOCAL_DIRS": str(local),
    }
    with ExitStack() as running:
        [port] = running.enter_context(held_ports(1))
        cluster = SparkCluster(folder, spark_home, environment, port)
        running.callback(cluster.stop)
        cluster.start()
        yield cluster


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """The same for tests that need only the address for `master`."""
    with standalone_cluster(folder) as cluster:
        yield cluster.master


def _descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


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
