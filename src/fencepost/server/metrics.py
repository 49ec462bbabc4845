"""`--metrics HOST:PORT`: the broker's metrics for Prometheus, served by the broker's own event loop.

Nearly every metric is read from the broker's state when Prometheus asks, on the event loop, so nothing is counted twice
and no lock is needed. Only requests are measured as they arrive, and only if there is a metrics port: `measure`.

Names follow Prometheus' conventions: the prefix `fencepost_`, base units, `_total` for counters and only for them. A
name that was replaced is served for one more version, with a help text that begins with "Deprecated".
"""

from __future__ import annotations

import asyncio
import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from fencepost import __version__
from fencepost.broker.api import APIS
from fencepost.broker.cluster import Cluster
from fencepost.broker.node import Frame
from fencepost.broker.topics import Topic
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.decisions import will_end
from fencepost.machines.txn.states import IDLE, Txn, TxnState
from fencepost.protocol import errors
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Malformed
from fencepost.protocol.walking import error_codes
from fencepost.server.connection import ClientConnection
from fencepost.server.socket_server import SocketServer

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


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
    """Bytes, latencies and errors of all connections."""

    def __init__(self) -> None:
        self.latencies: dict[int, Latencies] = {}
        self.errors: Counter[tuple[int, int]] = Counter()  # By API key and error code.
        self.bytes_in = 0
        self.bytes_out = 0

    def took(self, api_key: int, seconds: float) -> None:
        found = self.latencies.get(api_key)
        if found is None:
            found = self.latencies[api_key] = Latencies()
        found.add(seconds)

    def answered(self, api_key: int, version: int, parts: list[Part]) -> None:
        """Count the errors in an answer, whose first part is its header."""
        self.bytes_out += sum(map(len, parts))
        if len(parts) > 1 and api_key in APIS:
            # A client must get its answer even if it cannot be read here.
            with suppress(Malformed, KeyError):
                self.errors.update((api_key, code) for code in set(error_codes(api_key, version, parts[1:])))


class MeasuredConnection(ClientConnection):
    """Measures the time to each answer. At most one request is unanswered, so one start time is enough."""

    __slots__ = ("_api_key", "_began", "_traffic", "_version")

    def __init__(self, socket_server: SocketServer, traffic: Traffic) -> None:
        super().__init__(socket_server)
        self._traffic = traffic
        self._api_key = self._version = -1
        self._began = 0.0

    def begin(self, frame: Frame) -> None:
        self._api_key, self._version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        self._began = perf_counter()

    def buffer_updated(self, nbytes: int) -> None:
        self._traffic.bytes_in += nbytes
        super().buffer_updated(nbytes)

    def reply(self, parts: list[Part]) -> None:
        self._traffic.took(self._api_key, perf_counter() - self._began)
        self._traffic.answered(self._api_key, self._version, parts)
        super().reply(parts)


def measure(socket_server: SocketServer, traffic: Traffic) -> None:
    """From now on, measure the requests of this socket server."""
    handle = socket_server.handle

    def begin_and_handle(frame: Frame, connection: MeasuredConnection, now_ms: int) -> None:
        connection.begin(frame)
        handle(frame, connection, now_ms)

    socket_server.handle = begin_and_handle
    socket_server.make_connection = lambda socket_server: MeasuredConnection(socket_server, traffic)


PATIENCE_S = 5.0
MAX_HEADER_BYTES = 1 << 14


class BrokerCollector(Collector):
    """Reads the state of the broker whenever Prometheus asks."""

    def __init__(
        self,
        clusters: Callable[[], Sequence[Cluster]],
        socket_servers: list[SocketServer],
        traffic: Traffic,
        now_ms: Callable[[], int],
        denials: Mapping[tuple[int, Operation, ResourceType], int] | None = None,
    ) -> None:
        self._clusters = clusters  # As each node that is up has it.
        self._socket_servers = socket_servers
        self._traffic = traffic
        self._now_ms = now_ms
        self._denials = {} if denials is None else denials

    def collect(self) -> Iterator[Metric]:
        about = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("fencepost_build", "The version of the broker and of its Python.", value=about)
        yield from self._transactions()
        yield from self._partitions()
        yield from self._requests()
        yield from self._denied()

    def _transactions(self) -> Iterator[Metric]:
        now_ms = self._now_ms()
        counts = self._clusters()[0].txns.counts
        ended = CounterMetricFamily(
            "fencepost_transactions_ended",
            "Transactions whose outcome was decided since the start, by outcome.",
            labels=["outcome"],
        )
        ended.add_metric(["commit"], counts.committed)
        ended.add_metric(["abort"], counts.aborted)
        yield ended
        for name, text, value in (
            ("timed_out", "Transactions that were aborted because they exceeded their timeout.", counts.timed_out),
            (
                "fencings",
                "Requests that the coordinator refused because a newer producer has their transactional id.",
                counts.fenced,
            ),
            (
                "verification_failures",
                "Writes that were refused because their partition is not part of an open transaction (KIP-890).",
                counts.unverified,
            ),
        ):
            yield CounterMetricFamily(f"fencepost_transaction_{name}", text, value=value)
        by_state = dict.fromkeys(TxnState, 0)
        load = GaugeMetricFamily(
            "fencepost_coordinator_transactional_ids",
            "Transactional ids in a partition of __transaction_state. Partitions without ids are left out.",
            labels=["partition"],
        )
        begun_ms = []
        shards = {index: shard for cluster in self._clusters() for index, shard in cluster.txns.shards.items()}
        for index, shard in sorted(shards.items()):
            if shard.txns:
                load.add_metric([str(index)], len(shard.txns))
            for txn in shard.txns.values():
                by_state[txn.state] += 1
                if txn.state not in IDLE:
                    begun_ms.append(txn.start_ms)
        states = GaugeMetricFamily("fencepost_transactional_ids", "Transactional ids, by state.", labels=["state"])
        for state, count in by_state.items():
            states.add_metric([state.kafka_name], count)
        yield states
        yield load
        hanging = list(self._hanging().values())
        text = "Transactions that are open on a partition and unknown to their coordinator: no timeout will end them."
        yield GaugeMetricFamily("fencepost_transactions_hanging", text, value=len(hanging))
        text = "Transactions that have begun and are not complete, hanging ones included."
        yield GaugeMetricFamily("fencepost_transactions_open", text, value=len(begun_ms) + len(hanging))
        text = "Age of the oldest transaction that is not complete, hanging ones included; 0 if there is none."
        oldest_ms = min([now_ms, *begun_ms, *hanging])
        yield GaugeMetricFamily("fencepost_transaction_oldest_seconds", text, value=(now_ms - oldest_ms) / 1000)

    def _owners(self) -> dict[int, Txn]:
        return {txn.producer_id: txn for cluster in self._clusters() for txn in cluster.txns.all_txns()}

    def _hanging(self) -> dict[int, int]:
        """The producers whose transactions hang, and when each wrote its oldest last record."""
        owners = self._owners()
        found: dict[int, int] = {}
        for _, partition in self._all_partitions():
            for producer_id in partition.producers.open_txns:
                if not _is_known(partition, producer_id, owners):
                    wrote_ms = partition.producers.by_id[producer_id].last_timestamp
                    found[producer_id] = min(wrote_ms, found.get(producer_id, wrote_ms))
        return found

    def _partitions(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        age_text = "How long the oldest open transaction has held the last stable offset; 0 if none is open."
        gap_text = "Offsets from the last stable offset to the high watermark, which read_committed readers wait for."
        end_text = "The high watermark: the offset that the next record gets."
        size_text = "Bytes of the record batches in the log."
        aborted_text = "Bytes of transactions that were aborted since the start."
        gap = GaugeMetricFamily("fencepost_lso_gap_offsets", gap_text, labels=labels)
        age = GaugeMetricFamily("fencepost_lso_age_seconds", age_text, labels=labels)
        ends = GaugeMetricFamily("fencepost_log_high_watermark", end_text, labels=labels)
        size = GaugeMetricFamily("fencepost_log_bytes", size_text, labels=labels)
        aborted = CounterMetricFamily("fencepost_log_aborted_bytes", aborted_text, labels=labels)
        old_gap = GaugeMetricFamily(
            "fencepost_lso_gap_records", _deprecated("fencepost_lso_gap_offsets"), labels=labels
        )
        old_ends = CounterMetricFamily(
            "fencepost_log_end_offset", _deprecated("fencepost_log_high_watermark"), labels=labels
        )
        now_ms = self._now_ms()
        owners = self._owners()
        for topic, partition in self._all_partitions():
            where = [topic.name, str(partition.index)]
            for family in (ends, old_ends):
                family.add_metric(where, partition.high_watermark)
            size.add_metric(where, partition.log.end_address - partition.log.start_address)
            for family in (gap, old_gap):
                family.add_metric(where, partition.high_watermark - partition.last_stable_offset)
            age.add_metric(where, _held_for_s(partition, owners, now_ms))
            if partition.aborted_bytes:
                aborted.add_metric(where, partition.aborted_bytes)
        yield from (gap, age, ends, size, aborted, old_gap, old_ends)

    def _all_partitions(self) -> Iterable[tuple[Topic, Partition]]:
        """Partitions with records: empty ones would only add thousands of lines."""
        for cluster in self._clusters():
            for topic in cluster.topics.values():
                for partition in topic.partitions.values():
                    if partition.high_watermark:
                        yield topic, partition

    def _requests(self) -> Iterator[Metric]:
        text = "Time from the complete request to its answer, by API. Long polls and rebalances include their wait."
        for name, help_text in (
            ("fencepost_request_duration_seconds", text),
            ("fencepost_request_seconds", _deprecated("fencepost_request_duration_seconds")),
        ):
            latencies = HistogramMetricFamily(name, help_text, labels=["api"])
            for api_key, found in sorted(self._traffic.latencies.items()):
                latencies.add_metric([name_of_api(api_key)], found.buckets(), found.sum_s)
            yield latencies
        text = (
            "Answers that carry an error, by API and Kafka's name of the error. An answer counts once for each error."
        )
        failures = CounterMetricFamily("fencepost_request_errors", text, labels=["api", "error"])
        for (api_key, code), count in sorted(self._traffic.errors.items()):
            failures.add_metric([name_of_api(api_key), errors.name_of(code)], count)
        yield failures
        received, sent = self._traffic.bytes_in, self._traffic.bytes_out
        yield CounterMetricFamily("fencepost_received_bytes", "Bytes that clients have sent.", value=received)
        yield CounterMetricFamily("fencepost_sent_bytes", "Bytes of the answers to clients.", value=sent)
        open_now = sum(len(socket_server.connections) for socket_server in self._socket_servers)
        yield GaugeMetricFamily("fencepost_connections", "Connections of clients that are open.", value=open_now)

    def _denied(self) -> Iterator[Metric]:
        text = "What the ACLs denied to clients, by API, operation and type of the resource. The log names the clients."
        denials = CounterMetricFamily(
            "fencepost_authorization_denials", text, labels=["api", "operation", "resource_type"]
        )
        for (api_key, operation, resource_type), count in sorted(self._denials.items()):
            denials.add_metric([name_of_api(api_key), operation.name, resource_type.name], count)
        yield denials


def name_of_api(api_key: int) -> str:
    return APIS[api_key].name if api_key in APIS else str(api_key)


def _deprecated(new_name: str) -> str:
    return f"Deprecated: the same as {new_name}, and removed in the next version."


def _is_known(partition: Partition, producer_id: int, owners: Mapping[int, Txn]) -> bool:
    """Whether the coordinator will end the transaction that the producer has open on the partition."""
    txn = owners.get(producer_id)
    is_member = txn is not None and (partition.topic, partition.index) in txn.partitions
    return txn is not None and txn.state not in IDLE and is_member and will_end(txn, partition.epoch_of(producer_id))


def _held_for_s(partition: Partition, owners: Mapping[int, Txn], now_ms: int) -> float:
    """How long the partition's oldest open transaction has been open; its coordinator knows when it began."""
    for producer_id in partition.producers.open_txns:
        # The coordinator does not know a hanging transaction; then its last record is all that is known.
        since = partition.producers.by_id[producer_id].last_timestamp
        if _is_known(partition, producer_id, owners):
            since = owners[producer_id].start_ms
        return max(now_ms - since, 0) / 1000
    return 0.0


class MetricsServer:
    """A few lines of HTTP: GET /metrics, /health and /ready."""

    def __init__(self, collector: Collector, is_ready: Callable[[], bool] = lambda: True) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)  # Memory, processor time and open files; on Linux only.
        self._is_ready = is_ready
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
        elif path == "/health":
            status, body = "200 OK", b"alive\n"
        elif path == "/ready" and self._is_ready():
            status, body = "200 OK", b"ready\n"
        elif path == "/ready":
            status, body = "503 Service Unavailable", b"not ready\n"
        elif path == "/":
            status, body = (
                "200 OK",
                b"fencepost: metrics for Prometheus are at /metrics, probes at /health and /ready\n",
            )
        else:
            status, body = "404 Not Found", b"metrics are at /metrics, probes at /health and /ready\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + (b"" if method == "HEAD" else body)
