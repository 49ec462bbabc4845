"""The load of a crash run: the clients of the verifier on a broker that is killed, and the verdict on their history.

`scripts/fuzz.py` has the same load on a broker that is sent hostile frames.

    workload = Workload(broker, folder, seed)
    workload.create_topics()
    workload.start()
    ...                        # Faults; now and then workload.check(), which raises ClientFailed if a client has ended.
    workload.rest()            # Stops the clients, reads everything, and raises Lost if there is an anomaly.

The history and the parts of the clients are in `folder`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fencepost.cli.output import as_text
from fencepost.cli.verify.check import blocks_of, judged
from fencepost.client.client import KafkaClient
from fencepost.testing import Broker
from fencepost.verify.cluster_run import REST_S, write_history
from fencepost.verify.history import Event, Fault, Header, PowerLoss, Rest
from fencepost.verify.nemesis.schedule import NEMESIS
from fencepost.verify.report.document import VerifyReport
from fencepost.verify.workload.fleet import Fleet
from fencepost.verify.workload.last_reads import BY, await_rest, last_reads
from fencepost.verify.workload.logins import client_settings
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.plan import LIBRDKAFKA, OWN_V2, ClientPlan

TOPICS = {"orders": 2, "payments": 2, "shipments": 1}
INPUT, OUTPUT = "orders", "invoices"
COMPACTED, SHORT = "balances", "audit"
GROUP = "copiers"
CLEANUP = {COMPACTED: "compact", SHORT: "delete"}
TOPIC_SETTINGS = {
    COMPACTED: {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"},
    SHORT: {"retention.bytes": "16384", "segment.bytes": "4096"},
}
RETENTION_CHECK_S = 0.2
# Small segments, and a cleaner that is always at work, so that a run of a minute rolls and cleans many segments.
SETTINGS = {
    "log.segment.bytes": "65536",
    "transaction.state.log.segment.bytes": "16384",
    "offsets.topic.segment.bytes": "16384",
    "fencepost.state.clean.bytes": "4096",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": f"{RETENTION_CHECK_S * 1000:.0f}",
}
WRITTEN = {**TOPICS, COMPACTED: 1, SHORT: 1}
ALL_TOPICS = {**WRITTEN, OUTPUT: TOPICS[INPUT]}
WRITERS = (
    *(ClientPlan(f"writer-{i}", "writer", LIBRDKAFKA, f"writer-{i}", WRITTEN) for i in range(3)),
    ClientPlan("tv2-writer", "writer", OWN_V2, "tv2-writer", WRITTEN),
)
COPIERS = tuple(
    ClientPlan(f"copier-{i}", "copier", LIBRDKAFKA, f"copier-{i}", {INPUT: TOPICS[INPUT]}, GROUP, OUTPUT)
    for i in range(2)
)
# A reader of uncommitted records would get some that a power loss takes.
READER = ClientPlan("reader", "reader", "fencepost", topics=ALL_TOPICS, isolation="read_committed")
UNCOMMITTED_READER = READER._replace(name="reader-uncommitted", isolation="read_uncommitted")
# More load than the verifier's own: a life of the broker is short.
CLIENTS = tuple(client._replace(pause_s=0.01) for client in (*WRITERS, *COPIERS, READER))
QUESTION_MS = 1000


class Lost(Exception):
    """The broker broke a promise, or did not start again."""


class Workload:
    """`more_settings` of a client: those of its library that it has beside its own. `what`: its name in the report."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        seed: int,
        clients: Sequence[ClientPlan] = CLIENTS,
        more_settings: Callable[[ClientPlan], Mapping[str, Any]] = lambda _: {},
        what: str = "crash",
    ) -> None:
        self.history = folder / "history.jsonl"
        self.report: VerifyReport | None = None  # Of the last rest.
        self._broker = broker
        self._folder = folder
        self._seed = seed
        self._clients = clients
        self._more_settings = more_settings
        self._what = what
        self._events: list[Event] = []  # Of this process.
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None, "start comes first"
        return self._fleet

    @property
    def faults(self) -> list[Fault]:
        return [event for event in self._events if isinstance(event, Fault)]

    def create_topics(self) -> None:
        for topic, partitions in ALL_TOPICS.items():
            self._broker.create_topic(topic, partitions, TOPIC_SETTINGS.get(topic))

    def start(self) -> None:
        """Start all clients, or start them again after a rest."""
        if self._fleet is None:
            self._fleet = Fleet(self._clients, self._settings_of, self._seed, self._folder, self._events.append)
        self._fleet.start()

    def _settings_of(self, plan: ClientPlan) -> dict[str, Any]:
        servers = self._broker.bootstrap_servers
        known = client_settings(plan.kind, {"bootstrap.servers": servers}, servers, plan.name)
        return known | dict(self._more_settings(plan))

    def check(self) -> None:
        """Raises ClientFailed if a client has ended. One that hangs is killed and started again."""
        self.fleet.check()

    def note_fault(self, what: str) -> None:
        self._events.append(Fault(now(), NEMESIS, what))

    def note_power_loss(self) -> None:
        """The broker has lost its power, and is not back. A reader begins again behind the last record that it got."""
        self._events.append(PowerLoss(now(), NEMESIS))
        for client in self._clients:
            if client.role == "reader":
                self.fleet.kill(client.name)

    def rest(self) -> None:
        """Stop every client after its transaction, read everything and judge it. Raises Lost, with the report."""
        self.fleet.stop(self.note_fault)
        self.fleet.check()
        self.fleet.kill_all()
        time.sleep(5 * RETENTION_CHECK_S)  # Retention deletes old segments meanwhile.
        self.read_all()

    def read_all(self) -> None:
        """Read and judge everything, with no client at work. Raises Lost, with the report."""
        given = {"bootstrap.servers": self._broker.bootstrap_servers, "request.timeout.ms": QUESTION_MS}
        with KafkaClient(given) as client:
            await_rest(client, ALL_TOPICS, REST_S)
            self._events.append(Rest(now(), BY))
            last_reads(client, ALL_TOPICS, {GROUP: INPUT}, self._events.append)
        with self.history.open("wb") as file:
            header = Header(self._seed, {"verify": self._what}, ALL_TOPICS, cleanup=CLEANUP, copies={GROUP: OUTPUT})
            write_history(file, header, self._events, self._folder)
        self.report = judged(str(self.history))
        if self.report.anomalies:
            raise Lost(f"{self.report.anomalies} anomalies:\n\n{as_text(blocks_of(self.report))}")

    def kill(self) -> None:
        if self._fleet is not None:
            self._fleet.kill_all()

    def noted(self) -> str:
        return f"{self.fleet.noted_bytes:,} bytes of history"

    def counts(self) -> str:
        """The transactions by outcome, and the records, in words."""
        report = self.report
        assert report is not None, "rest comes first"
        return (
            f"{report.committed:,} committed, {report.aborted:,} aborted, {report.unknown:,} in doubt; "
            f"{report.sent:,} records sent, {report.read:,} read"
        )


@contextmanager
def started(workload: Workload) -> Iterator[Workload]:
    """The clients at work, on topics that exist; all are killed at the end."""
    try:
        workload.start()
        yield workload
    finally:
        workload.kill()
