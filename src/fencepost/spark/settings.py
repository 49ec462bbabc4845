"""The settings of a sink: those of a Kafka client, and its own. All are checked when the sink is created."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fencepost.client.failures import BadClientSetting
from fencepost.client.settings import KNOWN, describe_unknown, parse_settings
from fencepost.client.transaction import VERIFICATION
from fencepost.protocol.batch import CODECS
from fencepost.spark.encode.record_batches import DEFAULT_MAX_RECORD_BATCH_BYTES
from fencepost.spark.lease.port import parse_ports

DEFAULT_TIMEOUT_MS = 300_000
DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
SINK_SETTINGS = {
    "transactional.id": "the same at every start, and for this pipeline only: it fences an older run",
    "transaction.timeout.ms": "longer than the slowest micro-batch; at most the broker's transaction.max.timeout.ms",
    "delivery.timeout.ms": "how long a task tries to write one request; at most 80 % of the transaction's timeout",
    "group.id": "a consumer group that shows how far the pipeline has read its sources",
    "topic": "the output topic; wins over a column of that name",
    "compression.type": "none, gzip, snappy, lz4 or zstd",
    "max.request.size": "the largest record batch in bytes",
    "fencepost.offsets.retention.minutes": "the brokers' offsets.retention.minutes, if they do not show it to the sink",
    "fencepost.transaction.partition.verification.enable": "true if all brokers have it on and do not show it",
    "fencepost.checkpoint.location": "the query's checkpointLocation; needed with Spark Connect only",
    "fencepost.lease.host": "a name of the driver that executors can resolve; spark.driver.host if absent",
    "fencepost.lease.port": "the port of the lease service, or a range FROM-TO; any free port if absent",
    "fencepost.lease.bind": "the address that the lease service listens on; that of Spark's driver port if absent",
    "fencepost.lease.tls": "true, false, or auto: TLS to the driver if Spark encrypts, or Kafka has TLS or logins",
    "fencepost.plane": "where tasks run: jvm, python, or auto, which is jvm if the session has fencepost-spark.jar",
    "fencepost.metrics.port": "the port of the driver's metrics for Prometheus; no metrics if absent",
    "fencepost.metrics.bind": "the address that serves the metrics; all addresses of the driver if absent",
}
# The prefix of client settings for the cluster of the sources, if it is not the cluster of the outputs.
SOURCE_PREFIX = "fencepost.source."
# Where tasks run: see driver/planes.py. Whether the lease port has TLS: see driver/lease_place.py.
AUTO, JVM, PYTHON = "auto", "jvm", "python"
TRUE, FALSE = "true", "false"
_LOOKS_RANDOM = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    client: Mapping[str, object] = field(repr=False)
    source_client: Mapping[str, object] | None = field(repr=False)  # None: the sources are in the same cluster.
    transactional_id: str
    timeout_ms: int
    lease_timeout_ms: int
    group_id: str | None
    topic: str | None
    compression: str
    max_record_batch_bytes: int
    retention_ms: int | None  # How long brokers keep offsets, by the user. None: only the brokers know.
    is_verified: bool  # By the user: every broker verifies that a write belongs to an open transaction (KIP-890).
    checkpoint_location: str | None
    lease_host: str | None
    lease_bind: str | None
    lease_ports: range
    lease_tls: str
    plane: str
    metrics_port: int | None
    metrics_bind: str

    @property
    def bootstrap_servers(self) -> str:
        return str(self.client["bootstrap.servers"])

    @property
    def looks_random(self) -> bool:
        """Does the transactional.id look as if the next start of the pipeline will have another one?"""
        host = socket.gethostname().partition(".")[0].lower()
        # A short host name may be part of an id by chance. Generated host names are long.
        names_the_host = len(host) > 4 and host in self.transactional_id.lower()
        return names_the_host or _LOOKS_RANDOM.search(self.transactional_id) is not None


def parse_sink_settings(pairs: Mapping[str, object]) -> SinkSettings:
    """Raises BadClientSetting, which names the bad value and the valid ones."""
    given = {name: value for name, value in pairs.items() if value is not None}
    own = {name: str(value) for name, value in given.items() if name in SINK_SETTINGS}
    source = {n.removeprefix(SOURCE_PREFIX): v for n, v in given.items() if n.startswith(SOURCE_PREFIX)}
    client = {n: v for n, v in given.items() if n not in own and not n.startswith(SOURCE_PREFIX)}
    for name in client:
        _check_known(name)
    parse_settings(client)
    if source:
        try:
            parse_settings(source)
        except BadClientSetting as e:
            raise BadClientSetting(f"{SOURCE_PREFIX}*: {e}") from None
    if not own.get("transactional.id"):
        raise BadClientSetting("transactional.id is missing\n\nhint: a name that this pipeline keeps over restarts")
    if own.get("topic") == "":
        raise BadClientSetting(
            "topic is empty\n\nhint: name the output topic, or leave the setting out and give a column `topic`"
        )
    timeout_ms = _whole_number(own, "transaction.timeout.ms", DEFAULT_TIMEOUT_MS)
    try:
        ports = parse_ports(own.get("fencepost.lease.port", "0"))
    except ValueError as e:
        raise BadClientSetting(str(e)) from None
    return SinkSettings(
        client=client,
        source_client=source or None,
        transactional_id=own["transactional.id"],
        timeout_ms=timeout_ms,
        lease_timeout_ms=_lease_timeout_ms(own, timeout_ms),
        group_id=own.get("group.id"),
        topic=own.get("topic"),
        compression=_one_of(CODECS, own, "compression.type", "none"),
        max_record_batch_bytes=_whole_number(own, "max.request.size", DEFAULT_MAX_RECORD_BATCH_BYTES),
        retention_ms=_retention_ms(own),
        is_verified=_is_true(own, f"fencepost.{VERIFICATION}"),
        checkpoint_location=own.get("fencepost.checkpoint.location"),
        lease_host=own.get("fencepost.lease.host"),
        lease_bind=own.get("fencepost.lease.bind"),
        lease_ports=ports,
        lease_tls=_one_of((AUTO, TRUE, FALSE), {n: v.lower() for n, v in own.items()}, "fencepost.lease.tls", AUTO),
        plane=_one_of((AUTO, JVM, PYTHON), own, "fencepost.plane", AUTO),
        metrics_port=_port(own, "fencepost.metrics.port"),
        metrics_bind=own.get("fencepost.metrics.bind", "0.0.0.0"),
    )


def _lease_timeout_ms(own: Mapping[str, str], timeout_ms: int) -> int:
    """How long a lease may be held without an acknowledgement before the sink aborts the transaction.

    The default is that of a Kafka producer, and longer than a broker needs to restart, so a restart costs no attempt.
    It ends well before the transaction does, which leaves time to report the error. The connection shows sooner if an
    executor's machine is gone.
    """
    wanted_ms = _whole_number(own, "delivery.timeout.ms", DEFAULT_DELIVERY_TIMEOUT_MS)
    return max(min(wanted_ms, timeout_ms * 8 // 10), 1000)


def _retention_ms(own: Mapping[str, str]) -> int | None:
    name = "fencepost.offsets.retention.minutes"
    return _whole_number(own, name, 0) * 60_000 if name in own else None


def _one_of(known: Collection[str], values: Mapping[str, str], name: str, default: str) -> str:
    text = values.get(name, default)
    if text not in known:
        raise BadClientSetting(f"{name}={text} is none of {', '.join(known)}")
    return text


def _is_true(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadClientSetting(f"{name}={text} is neither true nor false")
    return text == "true"


def _check_known(name: str) -> None:
    if name not in KNOWN:
        known = [*KNOWN, *SINK_SETTINGS, f"{SOURCE_PREFIX}bootstrap.servers"]
        raise BadClientSetting(describe_unknown(name, known))


def _whole_number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise BadClientSetting(f"{name}={text} is not a whole number above 0")
    return int(text)


def _port(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        raise BadClientSetting(f"{name}={text} is not a port: 1 to 65535, or 0 for any")
    return int(text)
