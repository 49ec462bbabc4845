"""The records of a topic as readers see them, and the offsets of a group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from fencepost.protocol import errors
from fencepost.protocol.messages import ListOffsetsRequest, MetadataRequest, OffsetFetchRequest
from tests.wire.raw_client import RawClient

TIMEOUT_S = 30.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1

# Settings of confluent-kafka for tests that kill the broker.
IMPATIENT: dict[str, str | int | float | bool] = {
    # A killed broker is back in less than a second, so ask often.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    # librdkafka forgets its only broker after a few refused connections, and then send_offsets_to_transaction may
    # wait for the forgotten one, past its timeout and for ever (librdkafka issues 5511 and 5456).
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Seen(NamedTuple):
    """One record that a reader got."""

    topic: str
    partition: int
    offset: int
    value: str


def seen_of(message: Any) -> Seen:
    return Seen(message.topic(), message.partition(), message.offset(), message.value().decode())


def read_all(
    bootstrap_servers: str,
    topics: Iterable[str],
    isolation_level: str = "read_committed",
    until: Mapping[tuple[str, int], int] | None = None,
    more: Mapping[str, str | int | float | bool] | None = None,
) -> list[Seen]:
    """Every record below the present end offsets (or below `until`), in order for each partition.

    Waits for open transactions to end, because records behind them are acknowledged but not readable yet.
    """
    if until is None:
        with connect(bootstrap_servers) as client:
            ends = end_offsets(client, topics)
    else:
        ends = dict(until)
    config = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "reader",
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
    }
    consumer = Consumer(IMPATIENT | config | dict(more or {}))
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in ends])
        unread = set(ends)
        seen = []
        deadline = time.monotonic() + TIMEOUT_S
        while unread:
            assert time.monotonic() < deadline, f"after {TIMEOUT_S:g} s, not all records of {sorted(unread)} were read"
            message: Any
            for message in consumer.consume(5000, 0.01):
                error = message.error()
                where = message.topic(), message.partition()
                if error is None:
                    seen.append(seen_of(message))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif message.offset() >= ends[where]:
                    unread.discard(where)
        return seen
    finally:
        consumer.close()


def connect(bootstrap_servers: str) -> RawClient:
    host, _, port = bootstrap_servers.rpartition(":")
    return RawClient(host, int(port))


def end_offsets(
    client: RawClient, topics: Iterable[str], isolation_level: int = READ_UNCOMMITTED
) -> dict[tuple[str, int], int]:
    """The high watermark, or the last stable offset, of every partition."""
    partition = ListOffsetsRequest.ListOffsetsPartition
    asked = [
        ListOffsetsRequest.ListOffsetsTopic(name, [partition(index, timestamp=LATEST) for index in indexes])
        for name, indexes in partitions_of(client, topics).items()
    ]
    reply = client.call(ListOffsetsRequest(-1, isolation_level, asked), version=6)
    return {(topic.name, p.partition_index): p.offset for topic in reply.topics for p in topic.partitions}


def partitions_of(client: RawClient, topics: Iterable[str]) -> dict[str, list[int]]:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    known = client.call(MetadataRequest(wanted, allow_auto_topic_creation=False), version=9).topics
    return {topic.name: [p.partition_index for p in topic.partitions] for topic in known}


def committed_offsets(bootstrap_servers: str, group_id: str, topic: str) -> dict[int, int]:
    """The group's committed offset of each partition of the topic. Waits for pending offsets."""
    deadline = time.monotonic() + TIMEOUT_S
    with connect(bootstrap_servers) as client:
        # Asked for all partitions, Apache Kafka leaves out those whose first offset is still pending.
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        asked = [kind(name, indexes) for name, indexes in partitions_of(client, [topic]).items()]
        while True:
            reply = client.call(OffsetFetchRequest(group_id, asked, require_stable=True), version=7)
            found = [p for t in reply.topics for p in t.partitions]
            codes = {reply.error_code, *(p.error_code for p in found)} - {errors.NONE}
            if not codes:
                return {p.partition_index: p.committed_offset for p in found if p.committed_offset >= 0}
            assert codes == {errors.UNSTABLE_OFFSET_COMMIT}, f"OffsetFetch: errors {codes}"
            assert time.monotonic() < deadline, "the offsets stay pending"
            time.sleep(0.01)
