"""Asks the cluster at an interval, in a thread of its own, and keeps the last result for Prometheus.

A few lines of HTTP, GET /metrics and GET /health, answer from memory, at once: a slow cluster never delays a scrape.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from fencepost import __version__
from fencepost.client.admin.answers import DescribedTxn
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.diagnose.collect.partitions import collect_lso
from fencepost.diagnose.collect.transactions import collect_txns
from fencepost.diagnose.exporter.families import (
    CollectorStatus,
    ExporterReading,
    fencings_between,
    reading_families,
    status_families,
)
from fencepost.diagnose.snapshot import TXN_TOPIC

# A result that is older than this many intervals, and than this time, is no longer shown.
STALE_INTERVALS = 4
STALE_S = 60.0
STOP_TIMEOUT_S = 1.0


def collect_reading(client: KafkaClient) -> ExporterReading:
    """One look at the cluster. Raises ClientError if it cannot be reached."""
    topics = client.refresh([TXN_TOPIC])
    lso = collect_lso(client)
    txns = collect_txns(client)
    # After the epochs, so that none of them is of a newer version than the one that they are judged by.
    client.refresh_features()
    return ExporterReading(
        lso=lso,
        txns=txns,
        coordinators=topics[TXN_TOPIC].leaders if TXN_TOPIC in topics else (),
        ends_bump_epochs=client.transaction_version.bumps_epoch,
    )


class ClusterWatch(Collector):
    """Call `start`, then read it from any thread. Only its own thread talks to the cluster."""

    def __init__(self, client: KafkaClient, every_s: float, complain: Callable[[str], None]) -> None:
        self._client = client
        self._every_s = every_s
        self._complain = complain
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fencepost-exporter", daemon=True)
        # The following are replaced as a whole, never changed, so that readers need no lock.
        self._reading: ExporterReading | None = None
        self._described: dict[str, DescribedTxn] = {}
        self._bumped_epochs = False
        self._status = CollectorStatus(__version__, False, 0.0, 0.0, 0, 0)
        self._problem: str | None = None
        self._attempts = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do not wait for a cluster that does not answer: the thread ends with the process."""
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self.look()
            self._stopping.wait(max(self._every_s - (time.monotonic() - began), 0.0))

    def look(self) -> None:
        """Look at the cluster once."""
        began = time.monotonic()
        status = self._status
        try:
            reading = collect_reading(self._client)
        except Exception as e:  # Whatever is wrong with one answer, the next look may succeed.
            if self._stopping.is_set():
                return
            problem = str(e) if isinstance(e, ClientError) else f"{type(e).__name__}: {e}"
            if self._problem is None:
                self._complain(f"the cluster does not answer as expected: {problem}")
            self._problem = problem
            took_s = time.monotonic() - began
            self._status = status._replace(is_up=False, duration_s=took_s, failures=status.failures + 1)
            self._reading = None
        else:
            if self._problem is not None:
                self._complain("the cluster answers again")
            self._problem = None
            # The version may have changed since the last look, and either one may have made the epochs.
            ends_bump_epochs = reading.ends_bump_epochs or self._bumped_epochs
            fenced = fencings_between(self._described, reading.txns.described, ends_bump_epochs)
            self._bumped_epochs = reading.ends_bump_epochs
            # If a coordinator did not answer, its ids are compared with what they were before.
            kept = self._described if reading.txns.problems else {}
            self._described = kept | dict(reading.txns.described)
            self._reading = reading
            self._status = status._replace(
                is_up=True,
                last_success_s=time.time(),
                duration_s=time.monotonic() - began,
                fencings=status.fencings + fenced,
            )
        self._attempts += 1

    def collect(self) -> Iterator[Metric]:
        """Called for each scrape: the last reading, unless it is too old."""
        status, reading = self._status, self._reading
        if self._is_stale(status):
            status, reading = status._replace(is_up=False), None
        yield from status_families(status)
        if reading is not None:
            yield from reading_families(reading)

    def _is_stale(self, status: CollectorStatus) -> bool:
        return time.time() - status.last_success_s > max(STALE_INTERVALS * self._every_s, STALE_S)

    def health(self) -> tuple[bool, dict[str, object]]:
        """Whether the exporter itself works, and how it stands with the cluster.

        A cluster that is down is no reason to restart the exporter.
        """
        status = self._status
        is_well = self._thread.is_alive()
        return is_well, {
            "status": "ok" if is_well else "stopped",
            "cluster": "up" if status.is_up and not self._is_stale(status) else "down",
            "last_success_timestamp_seconds": status.last_success_s or None,
            "problem": self._problem,
            "collections": self._attempts,
        }


PATIENCE_S = 10.0
TEXT = "text/plain; charset=utf-8"
INDEX = b"fencepost exporter: metrics for Prometheus are at /metrics, the state of the exporter is at /health\n"


class ExporterServer(ThreadingHTTPServer):
    """Listens as soon as it is made; raises OSError if the address is taken."""

    daemon_threads = True

    def __init__(self, host: str, port: int, watch: ClusterWatch) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.watch = watch
        self.registry = CollectorRegistry()
        self.registry.register(watch)
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: ExporterServer
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        status, kind = HTTPStatus.OK, TEXT
        if path == "/metrics":
            kind, body = CONTENT_TYPE_LATEST, generate_latest(self.server.registry)
        elif path == "/health":
            is_well, document = self.server.watch.health()
            status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
            kind, body = "application/json", json.dumps(document).encode() + b"\n"
        elif path == "/":
            body = INDEX
        else:
            status, body = HTTPStatus.NOT_FOUND, INDEX
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def version_string(self) -> str:
        return "fencepost"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """A line per scrape would be noise."""
