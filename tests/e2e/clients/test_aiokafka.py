"""aiokafka against the broker: asyncio, and version 0 of every transactional request.

What all clients do with transactions is in test_transactions.py; here are its codecs, its group and its own example.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import ConsumerRecord

from fencepost.protocol.batch import HEADER_BYTES
from fencepost.testing import Broker
from tests.e2e.clients.scenarios import (
    CODECS,
    TEXTS,
    stored_batches,
)

Unique = Callable[[str], str]
TIMEOUT_S = 30.0


def producer_of(broker: Broker, **config: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **config)


def consumer_of(broker: Broker, *topics: str, **config: Any) -> AIOKafkaConsumer:
    defaults = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "fetch_max_wait_ms": 50}
    return AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap_servers, **defaults | config)


@asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> str:
    async with admin_of(broker) as admin:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        created = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dotted)])
        assert created.topic_errors == [(topic, 0, None)]
    return topic


async def send(producer: AIOKafkaProducer, topic: str, values: Sequence[str], **more: Any) -> None:
    for value in values:
        await producer.send(topic, value.encode(), **more)
    await producer.flush()


async def read_records(
    broker: Broker, topic: str, isolation_level: str = "read_committed"
) -> list[ConsumerRecord[bytes, bytes]]:
    """Everything that a reader of this isolation level can see now."""
    async with consumer_of(broker, isolation_level=isolation_level) as consumer:
        await consumer._client.add_topic(topic)
        partitions = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        records = []
        for where, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(where) < end:
                for got in (await consumer.getmany(where, timeout_ms=1000)).values():
                    records += got
        return records


async def read(broker: Broker, topic: str, isolation_level: str = "read_committed") -> list[str]:
    return [record.value.decode() for record in await read_records(broker, topic, isolation_level)]


async def until(is_done: Callable[[], bool], what: str) -> None:
    """Wait for something that aiokafka does in the background."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, f"never so: {what}"
        await asyncio.sleep(0.01)


async def committed_offset(broker: Broker, group_id: str, topic: str) -> int | None:
    async with consumer_of(broker, group_id=group_id) as consumer:
        found: int | None = await consumer.committed(TopicPartition(topic, 0))
        return found


# --- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
async def test_a_batch_is_kept_and_given_back_byte_for_byte_in_every_codec(
    broker: Broker, broker_data: Path, unique: Unique, codec: str
) -> None:
    topic = unique(f"codec-{codec}")
    async with producer_of(broker, compression_type=None if codec == "none" else codec) as producer:
        batch = producer.create_batch()
        for text in TEXTS:
            assert batch.append(key=None, value=text.encode(), timestamp=None) is not None
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))
    assert await read(broker, topic) == TEXTS
    ((header, stored),) = stored_batches(broker_data, topic)
    assert header.attributes & 7 == CODECS.index(codec)
    assert stored[HEADER_BYTES:] == bytes(batch._build())[HEADER_BYTES:]


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, StickyPartitionAssignor])
async def test_partitions_move_as_consumers_come_and_go_and_each_record_is_read_once(
    broker: Broker, unique: Unique, assignor: type
) -> None:
    topic, group_id = await create(broker, unique("moving"), partitions=6), unique("group")
    everything = {TopicPartition(topic, index) for index in range(6)}
    sent: list[str] = []
    got: list[str] = []

    def member() -> AIOKafkaConsumer:
        # Nothing is committed while records are on their way to the list, so none can be read twice.
        return consumer_of(
            broker, topic, group_id=group_id, partition_assignment_strategy=[assignor], enable_auto_commit=False
        )

    async def share(*consumers: AIOKafkaConsumer) -> None:
        """Wait until they have all partitions between them, in equal parts; then read what there is."""

        def is_fair() -> bool:
            parts = [consumer.assignment() for consumer in consumers]
            size = len(everything) // len(consumers)
            return all(len(part) == size for part in parts) and set().union(*parts) == everything

        await until(is_fair, f"{len(consumers)} consumers share {len(everything)} partitions")
        values = [str(len(sent) + number) for number in range(30)]
        sent.extend(values)
        async with producer_of(broker) as producer:
            for number, value in enumerate(values):
                await producer.send(topic, value.encode(), partition=number % 6)
        for consumer in consumers:
            while len(got) < len(sent) and any(
                [await consumer.position(where) * 6 < len(sent) for where in consumer.assignment()]
            ):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    got.extend(record.value.decode() for record in records)
            await consumer.commit()

    async with member() as first:
        await share(first)
        async with member() as second:
            await share(first, second)
        await share(first)
        async with member() as third:
            await share(first, third)
    assert sorted(got, key=int) == sent


# --- the client's own examples ----------------------------------------------------------------------------


async def test_the_clients_consume_process_produce_example_runs(broker: Broker, unique: Unique) -> None:
    """As "Transactional Consume-Process-Produce" in aiokafka's documents: counts per key and minute."""
    in_topic, out_topic, group_id = unique("in_topic"), unique("out_topic"), unique("processing-group")
    async with producer_of(broker) as source:
        for number in range(60):
            minute_ms = 1_700_000_040_000 + number % 2 * 60_000
            await source.send(in_topic, b"x", key=b"key-%d" % (number % 3), timestamp_ms=minute_ms)

    consumer = AIOKafkaConsumer(
        in_topic,
        bootstrap_servers=broker.bootstrap_servers,
        enable_auto_commit=False,
        group_id=group_id,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=unique("my-txn-id"))
    await producer.start()
    processed = 0
    try:
        while processed < 60:
            batch = await consumer.getmany(timeout_ms=10_000)
            async with producer.transaction():
                offsets = {}
                counts: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
                for where, records in batch.items():
                    offsets[where] = records[-1].offset + 1
                    processed += len(records)
                    for record in records:
                        counts[record.key][record.timestamp // 60_000 * 60] += 1
                for key, minutes in counts.items():
                    for second, count in minutes.items():
                        await producer.send(out_topic, str(count).encode(), key=key, timestamp_ms=second * 1000)
                await producer.send_offsets_to_transaction(offsets, group_id)
    finally:
        await consumer.stop()
        await producer.stop()

    totals: Counter[tuple[bytes, int]] = Counter()
    for record in await read_records(broker, out_topic):
        totals[record.key, record.timestamp] += int(record.value)
    minutes_ms = (1_700_000_040_000, 1_700_000_100_000)
    assert totals == {(b"key-%d" % key, minute): 10 for key in range(3) for minute in minutes_ms}
    assert await committed_offset(broker, group_id, in_topic) == 60
