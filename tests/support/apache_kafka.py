"""A real Apache Kafka: one node on loopback, for asking what the right answer is.

    with apache_kafka(transaction_max_timeout_ms=5000) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

`run_tool("kafka-dump-log", ...)` runs Kafka's own command line tools, against any broker. Both skip the test,
with the reason, where Java or the jars are missing.
"""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.java import SHORT_LIVED, java_command

START_TIMEOUT_S = 60.0

TOOLS = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


def run_tool(name: str, *arguments: str | Path, check: bool = True, timeout_s: float = 60) -> str:
    """Run one of Kafka's tools and return its stdout. Fails if it fails, unless `check` is off."""
    command = java_command(TOOLS[name], *arguments, options=SHORT_LIVED)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if check and done.returncode != 0:
        pytest.fail(f"{name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class ApacheKafka:
    """One broker process and its folder. `kill()` and `start()` make a crash and a restart."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Where its partitions are, one folder each."""
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self, heap: str = "512m") -> None:
        """Start the broker and wait until a client gets metadata."""
        assert self._process is None, "the broker is running already"
        options = [f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC"]
        command = java_command("kafka.Kafka", self.directory / "server.properties", options=options)
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not gives_metadata(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Apache Kafka did not start\n{self.log_tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run_tool(self, name: str, *arguments: str | Path, check: bool = True) -> str:
        """Run a tool that takes `--bootstrap-server`, against this broker."""
        return run_tool(name, "--bootstrap-server", self.bootstrap_servers, *arguments, check=check)

    def use_transaction_version(self, version: int) -> None:
        """Change the feature `transaction.version`: 2 is what a new cluster has, 1 is before KIP-890."""
        change = "upgrade" if version >= 2 else "downgrade"
        self.run_tool("kafka-features", change, "--feature", f"transaction.version={version}")

    def log_tail(self, lines: int = 30) -> str:
        log = self.directory / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


@contextmanager
def apache_kafka(*, heap: str = "512m", **overrides: object) -> Iterator[ApacheKafka]:
    """Run one broker for the length of a block; `overrides` are its settings, `_` for `.`."""
    with ExitStack() as cleanup:
        directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        port, controller_port = free_ports(2)
        settings = default_settings(directory / "data", port, controller_port)
        settings |= {name.replace("_", "."): str(value) for name, value in overrides.items()}
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run_tool("kafka-storage", "format", "--standalone", "-t", cluster_id, "-c", properties)
        kafka = ApacheKafka(directory, port)
        # The folder goes away with the block, so there is nothing worth a clean stop.
        cleanup.callback(kafka.kill)
        kafka.start(heap)
        yield kafka


def default_settings(data: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": str(data),
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment, all different."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            holder = held.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        return ports


def gives_metadata(port: int) -> bool:
    """Whether the broker at `port` answers Metadata (v1) with at least one broker."""
    # Header v1: key 3, version 1, correlation id 1, client id ""; body: no topics.
    request = struct.pack(">hhih", 3, 1, 1, 0) + struct.pack(">i", 0)
    address = ("127.0.0.1", port)
    with suppress(OSError, struct.error), socket.create_connection(address, timeout=2) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        reply = connection.recv(4096)
        _size, _correlation_id, brokers = struct.unpack_from(">iii", reply)
        return bool(brokers > 0)
    return False
