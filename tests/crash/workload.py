"""The load of a crash run: clients in their own processes, their topics, and the check of everything that they wrote.

workload = Workload(broker, folder, seed, CLIENTS)
workload.create_topics()
workload.start()
...                                  # Faults, and now and then workload.check(at_rest=False).
workload.stop()
workload.check(at_rest=True)
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.admin.offsets import committed_offsets
from fencepost.client.admin.partitions import end_offset, partitions_of
from fencepost.client.client import KafkaClient
from fencepost.testing import Broker
from tests.crash import killing
from tests.crash.client_process import ClientProcess
from tests.crash.journal import Journals
from tests.crash.killing import INPUT, OUTPUT, TOPICS
from tests.crash.ledger import Anomaly, Checker, Outcome, check_compacted, check_pipeline, check_retained
from tests.crash.load import Copier
from tests.readers.reading import IMPATIENT, TIMEOUT_S, read_all

COMPACTED, SHORT = "balances", "audit"
TOPIC_SETTINGS = {
    COMPACTED: {"cleanup.policy": "compact", "segment.bytes": "8192", "min.cleanable.dirty.ratio": "0.01"},
    SHORT: {"retention.bytes": "65536", "segment.bytes": "16384"},
}
RETENTION_CHECK_S = 0.2
SETTINGS = killing.SETTINGS | {"log.retention.check.interval.ms": f"{RETENTION_CHECK_S * 1000:.0f}"}
SHOWN_ANOMALIES = 20
# For each client: its class in `load.py`, and its options.
Clients = Mapping[str, tuple[str, dict[str, Any]]]
CLIENTS: Clients = {
    **{
        f"writer-{i}": ("TxnWriter", {"topics": {**TOPICS, COMPACTED: 1, SHORT: 1}, "keyed": [COMPACTED]})
        for i in range(3)
    },
    "tv2-writer": ("Tv2Writer", {"topics": {**TOPICS, SHORT: 1}}),
    **{f"copier-{i}": ("Copier", {"source": INPUT, "target": OUTPUT}) for i in range(2)},
}


class Lost(Exception):
    """The broker broke a promise, or did not start again."""


class Workload:
    """`more`: settings of librdkafka for the readers."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        seed: int,
        clients: Clients,
        more: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        self.clients: list[ClientProcess] = []
        self._broker = broker
        self._folder = folder
        self._seed = seed
        self._kinds = clients
        self._more = more or {}
        self._progress: dict[str, tuple[int, float]] = {}  # The size of each journal, and since when it has it.
        self._journals = Journals({})
        self._checker = Checker(self._journals, {COMPACTED, SHORT})

    def create_topics(self) -> None:
        admin = AdminClient(IMPATIENT | {"bootstrap.servers": self._broker.bootstrap_servers})
        partitions = {**TOPICS, OUTPUT: TOPICS[INPUT], COMPACTED: 1, SHORT: 1}
        new = [
            NewTopic(name, num_partitions=count, config=TOPIC_SETTINGS.get(name, {}))
            for name, count in partitions.items()
        ]
        for created in admin.create_topics(new).values():
            created.result(TIMEOUT_S)

    def start(self) -> None:
        for name, (kind, options) in self._kinds.items():
            path = self._folder / f"{name}.journal"
            self._journals.add(name, path)
            client = ClientProcess(name, kind, self._broker.bootstrap_servers, self._seed, path, **options)
            client.start()
            self.clients.append(client)

    def restart_hanging(self, after_s: float) -> list[str]:
        """Kill and start every client that has written nothing for so long; return what they were doing."""
        hanging = []
        for client in self.clients:
            size = client.journal.stat().st_size if client.journal.exists() else 0
            before, since = self._progress.get(client.name, (-1, 0.0))
            if size != before:
                self._progress[client.name] = size, time.monotonic()
            elif time.monotonic() - since > after_s:
                hanging.append(client.kill_hanging())
                client.start()
                self._progress[client.name] = size, time.monotonic()
        return hanging

    def stop(self, hangs_after_s: float | None = None) -> list[str]:
        """Stop every client after its transaction, and wait until retention has deleted old segments.

        With `hangs_after_s`, a client that does not end by then is killed, and its successor ends its transaction.
        Returns what such clients were doing.
        """
        hanging = []
        for client in self.clients:
            client.ask_to_stop()
        for client in self.clients:
            if hangs_after_s is not None and not client.ends_within(hangs_after_s):
                hanging.append(client.kill_hanging())
                client.start()
                client.ask_to_stop()
        for client in self.clients:
            client.stop()
        time.sleep(5 * RETENTION_CHECK_S)
        return hanging

    def kill(self) -> None:
        for client in self.clients:
            client.kill()

    def commits(self) -> int:
        """How many transactions were committed so far. Raises ClientFailed if a client has ended."""
        for client in self.clients:
            client.check()
        self._journals.refresh()
        return self._journals.count()[Outcome.COMMITTED]

    def counts(self) -> str:
        """The transactions by outcome, in words."""
        # Open transactions were never asked to be committed, and their clients were killed.
        counts = self._journals.count().items()
        return ", ".join(f"{count:,} {outcome.value}" for outcome, count in counts if outcome is not Outcome.OPEN)

    def check(self, *, at_rest: bool) -> None:
        """Read everything and compare it with the ledger. Raises Lost, with the evidence."""
        servers = self._broker.bootstrap_servers
        with KafkaClient({"bootstrap.servers": servers, "request.timeout.ms": 1000}) as client:
            inputs_of = [(INPUT, index) for index in range(TOPICS[INPUT])]
            found_offsets = committed_offsets(client, Copier.group_id, inputs_of)
            committed = {partition: offset for (_, partition), (offset, _) in found_offsets.items()}
            self._journals.refresh()
            over = self._journals.over()
            topics = [*TOPICS, OUTPUT, COMPACTED, SHORT]
            ends = {(t, p): end_offset(client, t, p, read_committed=False) for t, p in partitions_of(client, topics)}
        seen = read_all(servers, topics, until=ends, more=self._more)
        self._journals.refresh()
        of = {topic: [record for record in seen if record.topic == topic] for topic in {r.topic for r in seen}}
        inputs, outputs, compacted, short = (of.get(topic, []) for topic in (INPUT, OUTPUT, COMPACTED, SHORT))
        found: list[Anomaly] = [
            *self._checker.check(over, seen),
            *check_pipeline(inputs, outputs, committed, at_rest=at_rest),
            *check_compacted(over, COMPACTED, compacted),
        ]
        if at_rest:  # Before, records may be deleted during the read.
            found += check_retained(over, SHORT, short)
        if found:
            lines = "\n".join(f"  {anomaly}" for anomaly in found[:SHOWN_ANOMALIES])
            raise Lost(f"{len(found)} anomalies:\n{lines}")
