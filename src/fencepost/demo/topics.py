"""The topics of a demo, and the records that readers of both isolation levels see.

Works on any Kafka cluster, even if the topics already contain data: the readers start at the end offsets that the
topics had when the demo began.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from fencepost.demo.report import DemoFailed
from fencepost.protocol.topic_partition import TopicPartition as PartitionAddress

ORDERS, PAYMENTS, SHIPMENTS = TOPICS = ("brew.orders.v1", "brew.payments.v1", "brew.shipments.v1")

LATEST = OffsetSpec.latest()
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 20.0
# The demo explains errors itself, so the client must not write them to stderr.
QUIET = {"log_level": 0}
# librdkafka logs the fencing of a producer at any level, and the demo fences one on purpose.
_discard = logging.Logger("fencepost.demo")
_discard.addHandler(logging.NullHandler())
SILENT = {"logger": _discard}

SEE_LOG = "see the broker's log"
# Metadata of a new topic or leader reaches the brokers with a delay.
STALE_METADATA = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)

Offsets = Mapping[PartitionAddress, int]


class Seen(NamedTuple):
    """A record as a consumer received it."""

    topic: str
    partition: int
    offset: int
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}: {self.key} {self.value}"


class Topics:
    """Topics of one cluster: those of the brew demo, unless others are named."""

    def __init__(self, bootstrap_servers: str, names: Sequence[str] = TOPICS, partitions: int = 1) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.names = tuple(names)
        self._partitions = partitions
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})

    def there(self) -> list[str]:
        """The names of all topics of the cluster."""
        try:
            return sorted(self._admin.list_topics(timeout=CONNECT_TIMEOUT_S).topics)
        except KafkaException as error:
            raise DemoFailed(
                f"no broker answers at {self.bootstrap_servers}: {error.args[0].str()}",
                "start one with `fencepost broker`, or leave out --bootstrap; the demo then starts its own broker",
            ) from None

    def require(self) -> None:
        """Raise DemoFailed if one of the topics does not exist."""
        there = self.there()
        for name in self.names:
            if name not in there:
                known = ", ".join(t for t in there if not t.startswith("__")) or "none"
                raise DemoFailed(f"there is no topic {name}", f"the topics of this cluster: {known}")

    def create(self) -> None:
        """Create the topics that do not exist."""
        there = self.there()
        missing = [NewTopic(topic, num_partitions=self._partitions) for topic in self.names if topic not in there]
        if not missing:
            return
        for topic, created in self._admin.create_topics(missing, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                created.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise DemoFailed(
                        f"cannot create {topic}: {error.args[0].str()}",
                        "create the topic yourself, or ask an administrator of the cluster",
                    ) from None

    def ends(self, committed: bool = False) -> dict[PartitionAddress, int]:
        """The end offset of every partition; with `committed`, the last stable offset."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return self._ask_for_ends(committed)
            except KafkaException as error:
                if error.args[0].code() not in STALE_METADATA or time.monotonic() > deadline:
                    raise DemoFailed(f"cannot get the end offsets: {error.args[0].str()}", SEE_LOG) from None
            time.sleep(0.02)

    def _ask_for_ends(self, committed: bool) -> dict[PartitionAddress, int]:
        known = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        if not all(topic in known and known[topic].partitions for topic in self.names):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        asked = {TopicPartition(t, p): LATEST for t in self.names for p in known[t].partitions}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
        return {(tp.topic, tp.partition): answer.result().offset for tp, answer in answers.items()}

    def await_stable(self, timeout_s: float = 30.0) -> dict[PartitionAddress, int]:
        """Wait until every transaction that now has records on a partition has ended; return the end offsets.

        A broker may answer EndTxn before it writes the markers, as Apache Kafka does.
        """
        deadline = time.monotonic() + timeout_s
        ends = self.ends()
        while True:
            stable = self.ends(committed=True)
            still_open = [f"{t}-{p}" for (t, p), end in ends.items() if stable[t, p] < end]
            if not still_open:
                # Ask again, because markers may have been written in the meantime.
                return self.ends()
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"a transaction is still open on {', '.join(still_open)} after {timeout_s:g} s",
                    "another producer may be writing to these topics; try again when it has ended",
                )
            time.sleep(0.02)

    def await_end(self, partition: PartitionAddress, offset: int, timeout_s: float = 30.0) -> int:
        """Wait until the end offset of a partition is at least `offset`; return the end offset.

        For a commit whose marker `await_stable` cannot wait for, because another transaction holds back the LSO.
        """
        deadline = time.monotonic() + timeout_s
        while (end := self.ends()[partition]) < offset:
            if time.monotonic() > deadline:
                topic, index = partition
                raise DemoFailed(
                    f"a transaction was committed, but its marker is not on {topic}-{index} after {timeout_s:g} s: "
                    f"the end offset is {end}, {offset} was expected",
                    SEE_LOG,
                )
            time.sleep(0.02)
        return end

    def read(self, start: Offsets, committed: bool) -> list[Seen]:
        """Read all partitions from `start` to their ends: read_committed if `committed`, else read_uncommitted."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "fencepost-demo",
                "isolation.level": isolation(committed),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                # The client reports the end of a partition after an empty fetch, so the fetch should not wait for data.
                "fetch.wait.max.ms": 10,
                **QUIET,
            }
        )
        seen: list[Seen] = []
        unfinished = set(start)
        try:
            consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in start.items()])
            deadline = time.monotonic() + REQUEST_TIMEOUT_S
            while unfinished:
                message = consumer.poll(max(deadline - time.monotonic(), 0))
                if message is None:
                    raise DemoFailed(
                        f"no answer from {self.bootstrap_servers} for {REQUEST_TIMEOUT_S:g} s while reading",
                        "is the broker still running?",
                    )
                error = message.error()
                if error is None:
                    seen.append(seen_of(message))
                    deadline = time.monotonic() + REQUEST_TIMEOUT_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard((message.topic(), message.partition()))
                elif error.code() not in STALE_METADATA:
                    raise DemoFailed(f"cannot read: {error.str()}", SEE_LOG)
        finally:
            consumer.close()
        return sorted(seen)


def isolation(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"


def by_topic(seen: list[Seen]) -> dict[str, list[str]]:
    """The keys in each topic, in the order of the log."""
    keys: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for record in seen:
        keys[record.topic].append(record.key)
    return keys


def seen_of(message: Any) -> Seen:
    key, value = message.key() or b"", message.value() or b""
    return Seen(message.topic(), message.partition(), message.offset(), key.decode(), value.decode())
