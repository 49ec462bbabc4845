"""`--metrics HOST:PORT`: the broker's metrics for Prometheus, served by the broker's own event loop.

Nearly every metric is read from the broker's state when Prometheus asks, on the event loop, so nothing is counted twice
and no lock is needed. Only requests are measured as they arrive, and only if there is a metrics port:
`MeasuredConnection` then replaces `ClientConnection`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from time import perf_counter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from fencepost.broker.api import APIS
from fencepost.broker.cluster import Cluster
from fencepost.broker.topics import Topic
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.states import IDLE, ONGOING, Txn, TxnState
from fencepost.server.connection import ClientConnection
from fencepost.server.listener import Listener

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
PATIENCE_S = 5.0
MAX_HEADER_BYTES = 1 << 14


class Latencies:
    """How long the requests of one API took, from the complete frame to the answer."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        found, total = [], 0
        for limit, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((limit, float(total)))
        return found


class Traffic:
    """Bytes and latencies of all connections."""

    def __init__(self) -> None:
        self.latencies: dict[int, Latencies] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    def took(self, api_key: int, seconds: float) -> None:
        found = self.latencies.get(api_key)
        if found is None:
            found = self.latencies[api_key] = Latencies()
        found.add(seconds)


class MeasuredConnection(ClientConnection):
    """Measures the time to each answer. At most one request is unanswered, so one start time is enough."""

    __slots__ = ("_api_key", "_began", "_traffic")

    def __init__(self, listener: Listener, traffic: Traffic) -> None:
        super().__init__(listener)
        self._traffic = traffic
        self._api_key = -1
        self._began = 0.0

    def begin(self, frame: bytes) -> None:
        self._api_key = int.from_bytes(frame[:2], "big")
        self._began = perf_counter()

    def buffer_updated(self, nbytes: int) -> None:
        self._traffic.bytes_in += nbytes
        super().buffer_updated(nbytes)

    def reply(self, parts: list[bytes]) -> None:
        self._traffic.took(self._api_key, perf_counter() - self._began)
        self._traffic.bytes_out += sum(map(len, parts))
        super().reply(parts)


def measure(listener: Listener, traffic: Traffic) -> None:
    """From now on, measure the requests of this listener."""
    handle = listener.handle

    def begin_and_handle(frame: bytes, connection: MeasuredConnection, now_ms: int) -> None:
        connection.begin(frame)
        handle(frame, connection, now_ms)

    listener.handle = begin_and_handle
    listener.make_connection = lambda listener: MeasuredConnection(listener, traffic)


class BrokerCollector(Collector):
    """Reads the state of the broker whenever Prometheus asks."""

    def __init__(
        self, cluster: Cluster, listeners: list[Listener], traffic: Traffic, now_ms: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._listeners = listeners
        self._traffic = traffic
        self._now_ms = now_ms

    def collect(self) -> Iterator[Metric]:
        yield from self._transactions()
        yield from self._partitions()
        yield from self._requests()

    def _transactions(self) -> Iterator[Metric]:
        txns, now_ms = self._cluster.txns, self._now_ms()
        counts = txns.counts
        ended = CounterMetricFamily(
            "fencepost_transactions_ended", "Transactions that were decided.", labels=["outcome"]
        )
        ended.add_metric(["commit"], counts.committed)
        ended.add_metric(["abort"], counts.aborted)
        yield ended
        for name, text, value in (
            ("timed_out", "Transactions aborted because they outlived their timeout.", counts.timed_out),
            ("fencings", "Requests refused because a newer producer has their transactional id.", counts.fenced),
            ("verification_failures", "Writes refused because no transaction knows of them.", counts.unverified),
        ):  # fmt: skip
            yield CounterMetricFamily(f"fencepost_transaction_{name}", text, value=value)
        by_state = dict.fromkeys(TxnState, 0)
        oldest_ms = now_ms
        load = GaugeMetricFamily(
            "fencepost_coordinator_transactional_ids", "Ids of a state partition.", labels=["partition"]
        )
        for index, shard in enumerate(txns.shards):
            if shard.txns:
                load.add_metric([str(index)], len(shard.txns))
            for txn in shard.txns.values():
                by_state[txn.state] += 1
                if txn.state not in IDLE:
                    oldest_ms = min(oldest_ms, txn.start_ms)
        states = GaugeMetricFamily("fencepost_transactional_ids", "Transactional ids, by state.", labels=["state"])
        for state, count in by_state.items():
            states.add_metric([state.kafka_name], count)
        yield states
        yield load
        yield GaugeMetricFamily("fencepost_transactions_open", "Transactions without an end.", value=by_state[ONGOING])
        text = "Age of the oldest transaction without an end; 0 if there is none."
        yield GaugeMetricFamily("fencepost_transaction_oldest_seconds", text, value=(now_ms - oldest_ms) / 1000)

    def _partitions(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        gap = GaugeMetricFamily(
            "fencepost_lso_gap_records", "Offsets between the LSO and the high watermark.", labels=labels
        )
        age = GaugeMetricFamily(
            "fencepost_lso_age_seconds", "Age of the transaction that holds the LSO.", labels=labels
        )
        ends = CounterMetricFamily("fencepost_log_end_offset", "The high watermark.", labels=labels)
        size = GaugeMetricFamily("fencepost_log_bytes", "Bytes of the log.", labels=labels)
        aborted = CounterMetricFamily(
            "fencepost_log_aborted_bytes", "Bytes of aborted transactions that ended since the start.", labels=labels
        )
        now_ms = self._now_ms()
        owners = {txn.producer_id: txn for txn in self._cluster.txns.all_txns()}
        for topic, partition in self._all_partitions():
            where = [topic.name, str(partition.index)]
            ends.add_metric(where, partition.high_watermark)
            size.add_metric(where, partition.log.end_address - partition.log.start_address)
            gap.add_metric(where, partition.high_watermark - partition.last_stable_offset)
            age.add_metric(where, _held_for_s(partition, owners, now_ms))
            if partition.aborted_bytes:
                aborted.add_metric(where, partition.aborted_bytes)
        yield from (gap, age, ends, size, aborted)

    def _all_partitions(self) -> Iterable[tuple[Topic, Partition]]:
        """Partitions with records: empty ones would only add thousands of lines."""
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                if partition.high_watermark:
                    yield topic, partition

    def _requests(self) -> Iterator[Metric]:
        text = "From the whole request to its answer, waiting included."
        latencies = HistogramMetricFamily("fencepost_request_seconds", text, labels=["api"])
        for api_key, found in sorted(self._traffic.latencies.items()):
            name = APIS[api_key].name if api_key in APIS else str(api_key)
            latencies.add_metric([name], found.buckets(), found.sum_s)
        yield latencies
        yield CounterMetricFamily("fencepost_received_bytes", "Bytes of requests.", value=self._traffic.bytes_in)
        yield CounterMetricFamily("fencepost_sent_bytes", "Bytes of answers.", value=self._traffic.bytes_out)
        open_now = sum(len(listener.connections) for listener in self._listeners)
        yield GaugeMetricFamily("fencepost_connections", "Connections that are open.", value=open_now)


def _held_for_s(partition: Partition, owners: dict[int, Txn], now_ms: int) -> float:
    """How long the partition's oldest open transaction has been open; its coordinator knows when it began."""
    for producer_id in partition.producers.open_txns:
        txn = owners.get(producer_id)
        # The coordinator does not know a hanging transaction; then its last record is all that is known.
        since = partition.producers.by_id[producer_id].last_timestamp
        if txn is not None and txn.state not in IDLE and (partition.topic, partition.index) in txn.partitions:
            since = txn.start_ms
        return max(now_ms - since, 0) / 1000
    return 0.0


class MetricsServer:
    """A few lines of HTTP: GET /metrics."""

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Raises OSError if the address is taken. Returns the port."""
        self._server = await asyncio.start_server(self._answer, host, port, limit=MAX_HEADER_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
                writer.write(self._response(head.split(b"\r\n", 1)[0].decode("latin-1")))
                await asyncio.wait_for(writer.drain(), PATIENCE_S)
        finally:
            writer.close()

    def _response(self, request_line: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        path = rest.split(" ")[0].split("?")[0]
        kind = "text/plain; charset=utf-8"
        if method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", b"only GET\n"
        elif path == "/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry)
        elif path == "/":
            status, body = "200 OK", b"fencepost: metrics for Prometheus are at /metrics\n"
        else:
            status, body = "404 Not Found", b"metrics are at /metrics\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + (b"" if method == "HEAD" else body)
