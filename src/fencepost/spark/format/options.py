"""The options of `format("fencepost")` as settings of a sink. Pure.

They have the names of Spark's own Kafka sink: `topic`, and the settings of a producer behind `kafka.`. The settings of
the sink itself may be written with `kafka.` or without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.client.failures import BadClientSetting
from fencepost.counting import whole_number

KAFKA = "kafka."
# Spark's own: the place of the checkpoint is Spark's business, and a column `headers` is written in any case.
OF_SPARK = ("checkpointlocation", "includeheaders")
ANSWERS = ("adopt", "run_batch", "skip_batch", "max_attempts")  # The arguments of ExactlyOnceSink of the same names.
TOKEN = "token"
MOST_BATCHES = 2**63 - 1

# Settings of a producer with which a write would not be exactly once. The sink always works as the allowed value says.
ONLY = {
    "acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "transaction.two.phase.commit.enable": ("false",),
}
# Producer settings that would change the records or their partitions, and what to do instead.
REFUSED = {
    "partitioner.class": "leave it out: the key decides, as with Kafka's own clients, or a column `partition`",
    "interceptor.classes": "leave it out, and change the rows in the DataFrame",
    "key.serializer": "leave it out, and give the column `key` as STRING or BINARY",
    "value.serializer": "leave it out, and give the column `value` as STRING or BINARY",
}
# How Spark passes on what was said in other ways than by an option.
PARTITION_BY, PATH = "__partition_columns", "path"
# Producer settings that have no effect on this sink, and do no harm.
WITHOUT_EFFECT = frozenset(
    (
        *("batch.size", "buffer.memory", "connections.max.idle.ms", "linger.ms", "max.block.ms"),
        *(
            "max.in.flight.requests.per.connection",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "receive.buffer.bytes",
        ),
        *("reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms"),
        *("send.buffer.bytes", "partitioner.adaptive.partitioning.enable", "partitioner.ignore.keys"),
        *("client.dns.lookup", "partitioner.availability.timeout.ms", "socket.connection.setup.timeout.max.ms"),
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "enable.metrics.push"),
        *("metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
    )
)


@dataclass(frozen=True, slots=True)
class FormatOptions:
    settings: Mapping[str, str] = field(repr=False)
    answers: Mapping[str, Any]
    token: str | None
    without_effect: tuple[str, ...]


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> FormatOptions:
    """Raises BadClientSetting. The names and values of settings are checked when the sink is created."""
    settings: dict[str, str] = {}
    answers: dict[str, Any] = {}
    without_effect = []
    token = None
    for given, value in options.items():
        name = given.lower()
        if name in OF_SPARK:
            continue
        if name == PARTITION_BY:
            raise BadClientSetting(
                "partitionBy has no meaning for Kafka\n\nhint: the key chooses the partition, or a column `partition`"
            )
        if name == PATH:
            raise BadClientSetting(
                f'path {value} has no meaning for Kafka\n\nhint: .option("topic", ...) names the topic'
            )
        if name in ANSWERS:
            if not is_stream:
                raise BadClientSetting(f"option {name} is for a streaming query, but this is a plain write")
            answers[name] = value if name == "adopt" else _number(name, value)
        elif name == TOKEN:
            if is_stream:
                raise BadClientSetting(
                    f"option {TOKEN} is for a plain write: a streaming query writes each micro-batch once without it"
                )
            token = value
        elif (setting := name.removeprefix(KAFKA)) in WITHOUT_EFFECT:
            without_effect.append(given)
        elif setting in REFUSED:
            raise BadClientSetting(f"option {given} cannot be used with this sink\n\nhint: {REFUSED[setting]}")
        elif setting in ONLY:
            if value.lower() not in ONLY[setting]:
                raise BadClientSetting(f"option {given}={value}, expected {ONLY[setting][0]}: the sink is exactly once")
        elif settings.setdefault(setting, value) != value:
            raise BadClientSetting(f"{setting} is given twice, as {settings[setting]} and as {value}")
    return FormatOptions(settings, answers, token, tuple(without_effect))


def _number(name: str, text: str) -> int:
    number = whole_number(text, MOST_BATCHES)
    if number is None:
        raise BadClientSetting(f"option {name}={text} is not a whole number")
    return number
