"""The sink's metrics for Prometheus, which the driver serves at `fencepost.metrics.port`.

Sinks of one process share a port if they name the same one. Each series has the transactional.id as a label.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from fencepost.spark.driver.progress import COMMITTED, BatchProgress

log = logging.getLogger("fencepost.spark")

FAILED = "failed"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 900)


class Metrics:
    """All series of one port."""

    def __init__(self, bind: str, port: int) -> None:
        # Imported here, because a sink without metrics does not need the package.
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

        registry = CollectorRegistry()
        label, prefix = ["transactional_id"], "fencepost_sink_"

        def made(kind: Any, name: str, text: str, labels: list[str] = label, **more: Any) -> Any:
            return kind(prefix + name, text, labels, registry=registry, **more)

        self._batches = made(Counter, "batches", "Micro-batches, by outcome.", [*label, "outcome"])
        self._attempts = made(Counter, "attempts", "Transactions that were begun for committed micro-batches.")
        self._records = made(Counter, "records", "Records committed.")
        self._bytes = made(Counter, "bytes", "Bytes committed, encoded and compressed.")
        self._seconds = made(Histogram, "transaction_seconds", "From begin to commit.", buckets=SECONDS)
        self._share = made(Gauge, "timeout_share", "Share of transaction.timeout.ms that the last transaction used.")
        self._batch_id = made(Gauge, "last_batch_id", "The id of the last micro-batch that was committed or skipped.")
        self._last = made(Gauge, "last_commit_timestamp_seconds", "When the last transaction was committed.")
        self._server, self._thread = start_http_server(port, bind, registry)
        self.port: int = self._server.server_port

    def observe(self, transactional_id: str, progress: BatchProgress) -> None:
        id_ = transactional_id
        self._batches.labels(id_, progress.outcome).inc()
        if progress.batch_id >= 0:
            self._batch_id.labels(id_).set(progress.batch_id)
        if progress.outcome == COMMITTED:
            self._attempts.labels(id_).inc(progress.attempts)
            self._records.labels(id_).inc(progress.records)
            self._bytes.labels(id_).inc(progress.bytes)
            self._seconds.labels(id_).observe(progress.transaction_ms / 1000)
            self._share.labels(id_).set(progress.timeout_share)
            self._last.labels(id_).set_to_current_time()

    def observe_failure(self, transactional_id: str) -> None:
        self._batches.labels(transactional_id, FAILED).inc()


_lock = threading.Lock()
_serving: dict[tuple[str, int], Metrics] = {}


def metrics_at(bind: str, port: int) -> Metrics | None:
    """The metrics of a port. The first call opens it. None if that fails: the sink then works without metrics."""
    with _lock:
        if (bind, port) not in _serving:
            try:
                _serving[bind, port] = Metrics(bind, port)
            except (ImportError, OSError) as e:
                log.warning("no metrics on fencepost.metrics.port=%d: %s", port, e)
                return None
            log.info("metrics for Prometheus on port %d", _serving[bind, port].port)
        return _serving[bind, port]
