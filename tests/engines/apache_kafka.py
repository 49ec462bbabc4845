"""A real Apache Kafka: one node on loopback, for asking what the right answer is, or several that keep copies.

    with apache_kafka({"transaction.max.timeout.ms": 5000}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    with apache_kafka_cluster() as cluster:
        cluster.nodes[1].kill()

With `secured=True` it also listens where a password, TLS or both are wanted: `kafka.security("SASL_SSL", "PLAIN")`. It
takes tokens that `kafka.token_key` has signed, and ends a login with a token after REAUTHENTICATED_MS.
`run_tool("kafka-dump-log", ...)` runs Kafka's own command line tools, against any broker. Both skip the test,
with the reason, where Java or the jars are missing.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.certificates import AUTHORITY_FILE, Authority
from tests.engines.java import KAFKA_VERSION, SHORT_LIVED, java_command, quick_start
from tests.engines.oidc import AUDIENCE, ISSUER, SigningKey
from tests.wire.door import Door

START_TIMEOUT_S = 60.0
# A broker of a test lives for a minute: a quick compiler and a simple collector halve what its start takes.
IMPATIENT_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# As in the field, for measurements.
SERVER_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
USER, PASSWORD = "alice", "correct horse"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# How long a login with a token is valid on the secured listeners (connections.max.reauth.ms).
REAUTHENTICATED_MS = 1500
# Listeners by name. MTLS is TLS where clients have to show a certificate.
SECURED = ("SASL_PLAINTEXT", "SASL_SSL", "SSL", "MTLS")

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
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
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
# The names of the tools that were run; tests/e2e/clients/compatibility.py reads them.
TOOLS_RUN: list[str] = []


def run_tool(
    name: str, *arguments: str | Path, check: bool = True, timeout_s: float = 60, version: str = KAFKA_VERSION
) -> str:
    """Run one of Kafka's tools and return its stdout. Fails if it fails, unless `check` is off."""
    command = java_command(TOOLS[name], *arguments, options=quick_start(SHORT_LIVED, version), version=version)
    TOOLS_RUN.append(name)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if check and done.returncode != 0:
        pytest.fail(f"{name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def run_line(line: str, bootstrap_servers: str) -> None:
    """Run a line for one of Kafka's tools in a shell, as an operator does who pastes it. Fails if the tool fails."""
    name = line.split()[0]
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder) / name
        tool.write_text(
            f'#!/bin/sh\nexec {shlex.join(java_command(TOOLS[name], options=quick_start(SHORT_LIVED)))} "$@"\n'
        )
        tool.chmod(0o755)
        environment = {"PATH": f"{folder}:{os.defpath}", "FENCEPOST_BOOTSTRAP": bootstrap_servers}
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
    if done.returncode != 0:
        pytest.fail(f"{line}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")


class ApacheKafka:
    """One broker process and its folder. `kill()` and `start()` make a crash and a restart."""

    def __init__(
        self,
        directory: Path,
        port: int,
        secured_ports: Mapping[str, int] | None = None,
        version: str = KAFKA_VERSION,
        jvm: Sequence[str] | None = None,
    ) -> None:
        self.directory = directory
        self.port = port
        self.version = version
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._secured_ports = dict(secured_ports or {})
        # Of a secured broker: who signs the certificates and the tokens that it takes.
        self.authority: Authority | None = None
        self.token_key: SigningKey | None = None
        self._jvm = quick_start(IMPATIENT_JVM, version) if jvm is None else jvm
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Where its partitions are, one folder each."""
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the broker and wait until a client gets metadata."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the broker. One of a cluster is not ready before others are."""
        assert self._process is None, "the broker is running already"
        properties = self.directory / "server.properties"
        command = java_command("kafka.Kafka", properties, options=self._jvm, version=self.version)
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def await_ready(self) -> None:
        assert self._process is not None, "the broker is not running"
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

    def security(self, protocol: str, mechanism: str | None = None, password: str = PASSWORD) -> dict[str, str]:
        """The settings of a client that connects by one of SECURED. The certificate is by an authority of our own."""
        address, uses_tls = f"127.0.0.1:{self._secured_ports[protocol]}", protocol != "SASL_PLAINTEXT"
        settings = {"bootstrap.servers": address, "security.protocol": "SSL" if protocol == "MTLS" else protocol}
        if uses_tls:
            settings["ssl.ca.location"] = str(self.directory / AUTHORITY_FILE)
        if mechanism is not None:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
        return settings

    def run_tool(self, name: str, *arguments: str | Path, check: bool = True) -> str:
        """Run a tool that takes `--bootstrap-server`, against this broker."""
        servers = ("--bootstrap-server", self.bootstrap_servers)
        return run_tool(name, *servers, *arguments, check=check, version=self.version)

    def use_transaction_version(self, version: int) -> None:
        """Change the feature `transaction.version`: 2 is what a new cluster has, 1 is before KIP-890."""
        change = "upgrade" if version >= 2 else "downgrade"
        self.run_tool("kafka-features", change, "--feature", f"transaction.version={version}")

    def log_tail(self, lines: int = 30) -> str:
        log = self.directory / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


@contextmanager
def apache_kafka(
    overrides: Mapping[str, object] | None = None, *, jvm: Sequence[str] | None = None, secured: bool = False
) -> Iterator[ApacheKafka]:
    """Run one broker for the length of a block; `overrides` are settings that differ from `default_settings`.

    `jvm` are options of its JVM; without them it is one that starts quickly.
    """
    with ExitStack() as cleanup:
        directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        port, controller_port, *secured_ports = cleanup.enter_context(held_ports(2 + len(SECURED) * secured))
        settings = default_settings(directory / "data", port, controller_port)
        listeners = dict(zip(SECURED, secured_ports))
        authority: Authority | None = None
        token_key: SigningKey | None = None
        if secured:
            authority = make_certificates(directory)
            token_key = SigningKey()
            (directory / "jwks.json").write_text(token_key.jwks)
            settings |= secured_settings(settings, listeners, directory)
        settings |= {name: str(value) for name, value in (overrides or {}).items()}
        if secured:
            # Kafka reads keys only from where its JVM is allowed to.
            keys = settings["sasl.oauthbearer.jwks.endpoint.url"]
            allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
            jvm = (*(quick_start(IMPATIENT_JVM, KAFKA_VERSION) if jvm is None else jvm), allowed)
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = new_cluster_id()
        users = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in SCRAM if secured]
        scram = [word for user in users for word in ("--add-scram", user)]
        run_tool("kafka-storage", "format", "--standalone", "-t", cluster_id, "-c", properties, *scram)
        kafka = ApacheKafka(directory, port, listeners, jvm=jvm)
        kafka.authority, kafka.token_key = authority, token_key
        # The folder goes away with the block, so there is nothing worth a clean stop.
        cleanup.callback(kafka.kill)
        kafka.start()
        yield kafka


class ApacheKafkaCluster:
    """Several brokers, each of them a controller too, by their node ids.

    Requests from one broker to another pass through the door of the latter, if it has one.
    """

    def __init__(self, nodes: Mapping[int, ApacheKafka], doors: Mapping[int, Door]) -> None:
        self.nodes = dict(nodes)
        self.doors = dict(doors)
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in nodes.values())

    def kill(self, node_id: int) -> None:
        """kill -9."""
        self.nodes[node_id].kill()

    def start(self) -> None:
        """Start those that do not run, and wait until every replica of everything is in sync."""
        started = [node for node in self.nodes.values() if not node.is_running]
        for node in started:
            node.launch()
        for node in started:
            node.await_ready()
        deadline = time.monotonic() + START_TIMEOUT_S
        while behind := self._behind():
            if time.monotonic() > deadline:
                logs = "\n".join(node.log_tail() for node in self.nodes.values())
                raise RuntimeError(f"not in sync after {START_TIMEOUT_S:g} s: {behind}\n{logs}")
            time.sleep(0.05)

    def _behind(self) -> str:
        """What is not as it should be with all brokers at work; nothing: all is well."""
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            found = admin.list_topics(timeout=10)
        except KafkaException as error:
            return str(error)
        missing = self.nodes.keys() - found.brokers.keys()
        few = [
            f"{topic.topic}-{partition.id}"
            for topic in found.topics.values()
            for partition in topic.partitions.values()
            if partition.leader < 0 or set(partition.isrs) != set(partition.replicas)
        ]
        return ", ".join([f"no broker {node_id}" for node_id in sorted(missing)] + few)

    def use_transaction_version(self, version: int) -> None:
        """Of the whole cluster; see `ApacheKafka`."""
        next(node for node in self.nodes.values() if node.is_running).use_transaction_version(version)

    def stop(self) -> None:
        """There is nothing worth a clean stop in folders that go away."""
        for node in self.nodes.values():
            node.kill()


@contextmanager
def apache_kafka_cluster(
    overrides: Mapping[str, str] | None = None, *, version: str = KAFKA_VERSION, with_doors: bool = False
) -> Iterator[ApacheKafkaCluster]:
    """Three brokers, three replicas of everything, of which two have to be in sync.

    `with_doors`: a test can shut the door that the other brokers reach a broker through.
    """
    with ExitStack() as cleanup:
        directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        node_ids = (1, 2, 3)
        free = cleanup.enter_context(held_ports(3 * len(node_ids)))
        ports, controller_ports, inner_ports = (dict(zip(node_ids, free[n::3])) for n in range(3))
        doors = {n: cleanup.enter_context(Door(port)) for n, port in inner_ports.items() if with_doors}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in controller_ports.items())
        cluster_id = new_cluster_id()
        nodes = {}
        for node_id, port in ports.items():
            home = directory / str(node_id)
            home.mkdir()
            settings = default_settings(home / "data", port, controller_ports[node_id])
            settings |= cluster_settings(node_id, voters)
            if with_doors:
                settings |= door_settings(settings, inner_ports[node_id], doors[node_id].port)
            settings |= overrides or {}
            del settings["controller.quorum.bootstrap.servers"]  # Voters are named, so they need not be found.
            properties = home / "server.properties"
            properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            run_tool("kafka-storage", "format", "-t", cluster_id, "-c", properties, version=version)
            nodes[node_id] = ApacheKafka(home, port, version=version)
        cluster = ApacheKafkaCluster(nodes, doors)
        cleanup.callback(cluster.stop)
        cluster.start()
        yield cluster


def cluster_settings(node_id: int, voters: str) -> dict[str, str]:
    """What is different for one broker of three."""
    replicas = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
    }
    return replicas | {
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        # As many as three brokers need; fifty take their time.
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        # When a broker counts as dead: sooner than in the field, later than a busy machine may take to answer.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
    }


def door_settings(settings: Mapping[str, str], port: int, door_port: int) -> dict[str, str]:
    """What is added for a broker that others reach through a door. Clients and controllers do not need it."""
    return {
        "listeners": f"{settings['listeners']},INNER://127.0.0.1:{port}",
        "advertised.listeners": f"{settings['advertised.listeners']},INNER://127.0.0.1:{door_port}",
        "inter.broker.listener.name": "INNER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INNER:PLAINTEXT",
    }


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
        # A connection that a long run of tests comes back to is still there.
        "connections.max.idle.ms": "-1",
    }


def secured_settings(settings: Mapping[str, str], ports: Mapping[str, int], directory: Path) -> dict[str, str]:
    """What is added to the settings of a broker for it to listen to each of SECURED as well."""
    more = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items())
    module = "org.apache.kafka.common.security"
    by_listener = {}
    for protocol in ports:
        if protocol.startswith("SASL"):
            prefix = f"listener.name.{protocol.lower()}"
            plain = f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            by_listener[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in SCRAM:
                scram = f"{module}.scram.ScramLoginModule required;"
                by_listener[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = scram
            oauthbearer = f"{prefix}.oauthbearer"
            by_listener[f"{oauthbearer}.sasl.jaas.config"] = f"{module}.oauthbearer.OAuthBearerLoginModule required;"
            by_listener[f"{oauthbearer}.sasl.server.callback.handler.class"] = (
                f"{module}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            )
            by_listener[f"{oauthbearer}.connections.max.reauth.ms"] = str(REAUTHENTICATED_MS)
    return by_listener | {
        "listeners": f"{settings['listeners']},{more}",
        "advertised.listeners": f"{settings['advertised.listeners']},{more}",
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "MTLS:SSL", *(f"{p}:{p}" for p in ports if p != "MTLS")]
        ),
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM, "OAUTHBEARER")),
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(directory / "server.p12"),
        "ssl.keystore.password": PASSWORD,
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / AUTHORITY_FILE),
    }


def make_certificates(directory: Path) -> Authority:
    """An authority and a key for 127.0.0.1 that it vouches for, `server.p12`; which clients to trust."""
    authority = Authority(directory)
    authority.certify("CN=broker", ("127.0.0.1",)).write_pkcs12(directory / "server.p12", PASSWORD)
    return authority


def new_cluster_id() -> str:
    """As Kafka writes it; none that its tool would take for an option."""
    while (cluster_id := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return cluster_id


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Free ports that no other process is given during the block; a server that reuses addresses, as Java's do, can.

    They stay bound here without listening. A port that was only looked up may be taken when the JVM is ready.
    Only Linux lets a second socket bind such a port; elsewhere they are looked up and no more.
    """
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            holder = held.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        if sys.platform != "linux":
            held.close()
        yield ports


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
