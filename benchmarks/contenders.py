"""The brokers that are compared. Each is a process that can be stopped, killed and started again.

`fencepost` is this repository and `against` the one in another folder; `kafka` is Apache Kafka, and `mock` librdkafka's
mock cluster, which keeps nothing for long.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.child import start_whole
from fencepost.testing import Broker
from tests.engines.apache_kafka import SERVER_JVM, apache_kafka, gives_metadata
from tests.engines.java import why_no_java
from tests.wire.raw_client import RawClient

FENCEPOST, AGAINST, KAFKA, MOCK = "fencepost", "against", "kafka", "mock"
TITLES = {FENCEPOST: "Fencepost", AGAINST: "Fencepost, other version", KAFKA: "Apache Kafka", MOCK: "mock"}
PATIENCE_S = 60.0
Settings = Mapping[str, object]


class Server(Protocol):
    """A broker process."""

    @property
    def pid(self) -> int: ...

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Contender:
    """A broker under measurement, with the topics that were created and the connections that a case holds open."""

    def __init__(self, kind: str, server: Server, other: Path | None = None) -> None:
        self.kind = kind
        self.server = server
        self.topics: set[str] = set()
        self.held: list[RawClient] = []
        self.is_warm = kind != KAFKA  # Java compiles what it has run often.
        self._other = other

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def bootstrap_servers(self) -> str:
        return self.server.bootstrap_servers

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    def memory_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6

    def cpu_s(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def create_topics(self, names: Sequence[str], partitions: int) -> None:
        """The mock creates a topic when it is first asked for; it has four partitions then."""
        self.topics.update(names)
        if self.kind == MOCK:
            return
        topics = [NewTopic(name, partitions, 1) for name in names]
        admin = self._admin()
        for made in admin.create_topics(topics, operation_timeout=PATIENCE_S).values():
            made.result(PATIENCE_S)

    def delete_topics(self, names: Sequence[str]) -> None:
        if self.kind == MOCK:
            return
        admin = self._admin()
        for gone in admin.delete_topics(list(names), operation_timeout=PATIENCE_S).values():
            gone.result(PATIENCE_S)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def another(self, settings: Settings) -> AbstractContextManager[Contender]:
        """A new broker of the same kind."""
        return contender(self.kind, other=self._other, settings=settings)

    def await_metadata(self) -> None:
        while not gives_metadata(self.port):
            pass


class OtherVersion(Broker):
    """A broker of the repository in another folder, with the packages of this one."""

    source: Path

    def _command(self) -> list[str]:
        return ["/usr/bin/env", f"PYTHONPATH={self.source / 'src'}", *super()._command()]


class Mock:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.mock"]
        self._process = start_whole(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
        )
        assert self._process.stdout is not None
        self.bootstrap_servers = self._process.stdout.readline().strip()
        if not self.bootstrap_servers:
            raise SystemExit(f"error: the mock cluster did not start\n\nhint: {' '.join(command)}")

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def end_tidily() -> None:
    """Let SIGTERM, and SIGINT in the background too, end the brokers and clients with this process, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))


def why_not(kind: str) -> str | None:
    """Why a contender cannot run here."""
    return why_no_java() if kind == KAFKA else None


@contextmanager
def contender(
    kind: str, *, other: Path | None = None, settings: Settings | None = None, topics: Mapping[str, int] | None = None
) -> Iterator[Contender]:
    """Run one for the length of a block. `settings` have Kafka's names, and the mock has none."""
    with ExitStack() as cleanup:
        if kind == KAFKA:
            # Deleted topics give their space back soon, as many of them are written.
            more = {"log.segment.delete.delay.ms": 1000, **(settings or {})}
            server: Server = cleanup.enter_context(apache_kafka(more, jvm=SERVER_JVM))
        elif kind == MOCK:
            server = Mock()
            cleanup.callback(server.kill)
            server.start()
        else:
            data = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-"))
            broker = (Broker if kind == FENCEPOST else OtherVersion)(
                data=data, settings=settings, topics=topics, start_timeout_s=PATIENCE_S
            )
            if isinstance(broker, OtherVersion):
                assert other is not None, "which other version?"
                broker.source = other
            # The folder goes away with the block, so there is nothing worth a clean stop.
            cleanup.callback(broker.kill)
            broker.start()
            server = broker
        yield Contender(kind, server, other)
