"""aiokafka against the broker: asyncio, and version 0 of every transactional request.

What all clients do with transactions is in test_transactions.py; here is the rest.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
)
from aiokafka.structs import ConsumerRecord

from fencepost.protocol.batch import HEADER_BYTES
from fencepost.testing import Broker
from tests.e2e.clients.scenarios import (
    CODECS,
    TEXTS,
    stored_batches,
)
from tests.e2e.conftest import StartBroker

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


async def send_plain(broker: Broker, topic: str, values: Sequence[str], **more: Any) -> None:
    async with producer_of(broker) as producer:
        await send(producer, topic, values, **more)


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


async def test_keys_headers_timestamps_and_nulls_survive(broker: Broker, unique: Unique) -> None:
    topic = unique("whole")
    headers = [("trace", b"\x00\xff"), ("trace", b"twice"), ("empty", b"")]
    async with producer_of(broker) as producer:
        sent = await producer.send_and_wait(topic, b"value", b"key", headers=headers, timestamp_ms=1_700_000_000_123)
        assert (sent.partition, sent.offset, sent.timestamp) == (0, 0, 1_700_000_000_123)
        await producer.send_and_wait(topic, None, b"tombstone")
        await producer.send_and_wait(topic, b"", b"")
    first, tombstone, empty = await read_records(broker, topic)
    assert (first.key, first.value, list(first.headers)) == (b"key", b"value", headers)
    assert (first.timestamp, first.timestamp_type) == (1_700_000_000_123, 0)
    assert (tombstone.key, tombstone.value) == (b"tombstone", None)
    assert (empty.key, empty.value) == (b"", b"")


async def test_offsets_are_found_by_time(broker: Broker, unique: Unique) -> None:
    topic, where = unique("times"), TopicPartition
    async with producer_of(broker) as producer:
        for offset in range(10):
            await producer.send_and_wait(topic, b"x", timestamp_ms=1_700_000_000_000 + offset * 1000)
    async with consumer_of(broker, topic) as consumer:
        found = await consumer.offsets_for_times({where(topic, 0): 1_700_000_004_001})
        assert found[where(topic, 0)].offset == 5
        assert found[where(topic, 0)].timestamp == 1_700_000_005_000
        assert await consumer.offsets_for_times({where(topic, 0): 1_700_000_010_000}) == {where(topic, 0): None}
        assert await consumer.beginning_offsets([where(topic, 0)]) == {where(topic, 0): 0}
        assert await consumer.end_offsets([where(topic, 0)]) == {where(topic, 0): 10}


async def test_large_records_go_through_where_their_topic_allows_them(broker: Broker, unique: Unique) -> None:
    wide = await create(broker, unique("wide"), max_message_bytes="9000000")
    narrow = await create(broker, unique("narrow"), max_message_bytes="1000")
    value = "x" * 8_000_000
    async with producer_of(broker, max_request_size=9_000_000) as producer:
        await producer.send_and_wait(wide, value.encode())
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(narrow, b"x" * 2000)
    assert await read(broker, wide) == [value]
    assert await read(broker, narrow) == []


async def test_a_hundred_topics_are_read_by_one_pattern(broker: Broker, unique: Unique) -> None:
    prefix = unique("many")
    topics = [f"{prefix}.{number}" for number in range(100)]
    async with admin_of(broker) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
    async with producer_of(broker) as producer:
        await asyncio.gather(*[producer.send_and_wait(topic, topic.encode()) for topic in topics])
    consumer = consumer_of(broker, group_id=unique("group"))
    consumer.subscribe(pattern=f"^{prefix}[.].*")
    async with consumer:
        assert {(await consumer.getone()).value.decode() for _ in topics} == set(topics)


async def test_an_idempotent_producer_sends_many_batches_at_once_and_in_order(broker: Broker, unique: Unique) -> None:
    topic = await create(broker, unique("idempotent"))
    values = [f"{number:05}" for number in range(5000)]
    async with producer_of(broker, enable_idempotence=True, max_batch_size=1000) as producer:
        await send(producer, topic, values)
    assert await read(broker, topic) == values


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor])
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


async def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(broker: Broker, unique: Unique) -> None:
    topic, group_id = await create(broker, unique("static"), partitions=4), unique("group")

    def member(name: str) -> AIOKafkaConsumer:
        return consumer_of(broker, topic, group_id=group_id, group_instance_id=name)

    async with member("stays") as stays:
        async with member("returns") as returns:
            await until(lambda: len(stays.assignment()) == len(returns.assignment()) == 2, "two each")
            had = returns.assignment()
            generation = stays._coordinator.generation
        async with member("returns") as returns:
            assert returns.assignment() == had
            assert stays._coordinator.generation == generation


async def test_a_group_goes_on_where_it_stopped_and_its_lag_is_known(broker: Broker, unique: Unique) -> None:
    topic, group_id = await create(broker, unique("lag")), unique("group")
    await send_plain(broker, topic, TEXTS)
    where = TopicPartition(topic, 0)
    async with consumer_of(broker, topic, group_id=group_id, enable_auto_commit=False) as consumer:
        assert [(await consumer.getone()).value.decode() for _ in range(20)] == TEXTS[:20]
        await consumer.commit()
        assert consumer.highwater(where) - await consumer.committed(where) == 30
    async with consumer_of(broker, topic, group_id=group_id, enable_auto_commit=False) as consumer:
        assert [(await consumer.getone()).value.decode() for _ in range(30)] == TEXTS[20:]


# --- transactions -----------------------------------------------------------------------------------------


async def test_an_open_transaction_holds_the_last_stable_offset(broker: Broker, unique: Unique) -> None:
    topic = unique("open")
    where = TopicPartition(topic, 0)
    async with producer_of(broker, transactional_id=unique("txn")) as producer:
        await producer.begin_transaction()
        await send(producer, topic, ["open"])
        await send_plain(broker, topic, ["plain"])
        async with consumer_of(broker, topic, isolation_level="read_committed") as consumer:
            waiting = asyncio.create_task(consumer.getone())
            await until(lambda: consumer.highwater(where) == 2, "the consumer has fetched")
            assert consumer.last_stable_offset(where) == 0
            assert not waiting.done()
            await producer.commit_transaction()
            assert (await waiting).value == b"open"
            assert (await consumer.getone()).value == b"plain"


# --- administration ---------------------------------------------------------------------------------------


async def test_topics_are_created_grown_described_and_deleted(broker: Broker, unique: Unique) -> None:
    topic = await create(broker, unique("admin"), partitions=2, retention_ms="123456")
    async with admin_of(broker) as admin:
        again = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert [error for _, error, *_ in again.topic_errors] == [TopicAlreadyExistsError.errno]
        await admin.create_partitions({topic: NewPartitions(5)})
        (described,) = await admin.describe_topics([topic])
        assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2, 3, 4]

        (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((_, _, _, _, entries),) = response.resources
        config = {entry[0]: entry[1] for entry in entries}
        assert config["retention.ms"] == "123456"

        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()


async def test_the_cluster_describes_itself(broker: Broker) -> None:
    async with admin_of(broker) as admin:
        cluster = await admin.describe_cluster()
    ((node,),) = [cluster["brokers"]]
    assert (node["host"], node["port"]) == (broker.host, broker.port)
    assert cluster["controller_id"] == node["node_id"]
    assert len(cluster["cluster_id"]) == 22


async def test_groups_are_listed_described_and_their_offsets_shown(broker: Broker, unique: Unique) -> None:
    topic, group_id = await create(broker, unique("described")), unique("group")
    await send_plain(broker, topic, TEXTS)
    async with admin_of(broker) as admin, consumer_of(broker, topic, group_id=group_id) as consumer:
        await consumer.getone()
        await consumer.commit()
        assert (group_id, "consumer") in await admin.list_consumer_groups()
        (response,) = await admin.describe_consumer_groups([group_id])
        ((error, name, state, kind, assignor, members, *_),) = response.groups
        assert (error, name, state, kind, assignor) == (0, group_id, "Stable", "consumer", "roundrobin")
        assert len(members) == 1
        offsets = await admin.list_consumer_group_offsets(group_id)
        assert {where: found.offset for where, found in offsets.items()} == {TopicPartition(topic, 0): 1}


# --- crashes ----------------------------------------------------------------------------------------------


async def test_records_sent_while_the_broker_restarts_are_neither_lost_nor_doubled(start_broker: StartBroker) -> None:
    broker = start_broker()
    topic = await create(broker, "steady")
    acknowledged = 0

    async def produce() -> None:
        nonlocal acknowledged
        async with producer_of(broker, enable_idempotence=True) as producer:
            pending = []
            for number in range(1500):
                pending.append(await producer.send(topic, str(number).encode()))
                if number % 10 == 0:
                    await pending[-1]
                acknowledged = number
            await asyncio.gather(*pending)

    producing = asyncio.create_task(produce())
    await until(lambda: acknowledged > 200 or producing.done(), "some records are there")
    await asyncio.to_thread(broker.restart)
    await until(lambda: acknowledged > 700 or producing.done(), "more records are there")
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.restart)
    await asyncio.wait_for(producing, TIMEOUT_S)
    assert await read(broker, topic) == [str(number) for number in range(1500)]


async def test_a_transaction_goes_on_after_kill_9_with_its_records_and_offsets(start_broker: StartBroker) -> None:
    broker = start_broker()
    source, target = await create(broker, "source"), await create(broker, "target")
    where = TopicPartition(source, 0)
    async with producer_of(broker, transactional_id="txn") as producer:
        await producer.begin_transaction()
        await send(producer, target, TEXTS[:30])
        await producer.send_offsets_to_transaction({where: 30}, "group")
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)
        assert await read(broker, target) == []
        await send(producer, target, TEXTS[30:])
        await producer.send_offsets_to_transaction({where: 50}, "group")
        await producer.commit_transaction()
    assert await committed_offset(broker, "group", source) == 50
    assert await read(broker, target) == TEXTS


# --- the client's own examples ----------------------------------------------------------------------------


async def test_the_clients_batch_produce_example_runs(broker: Broker, unique: Unique) -> None:
    """As examples/batch_produce.py of aiokafka: fill a batch until it is full, send it, begin the next."""
    topic, count = unique("my_topic"), 1000
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    await producer.start()
    batch = producer.create_batch()
    number = 0
    while number < count:
        if batch.append(key=None, value=f"Test message {number}".encode(), timestamp=None) is None:
            partition = random.choice(tuple(await producer.partitions_for(topic)))
            await producer.send_batch(batch, topic, partition=partition)
            batch = producer.create_batch()
            continue
        number += 1
    partition = random.choice(tuple(await producer.partitions_for(topic)))
    await producer.send_batch(batch, topic, partition=partition)
    await producer.stop()
    assert await read(broker, topic) == [f"Test message {number}" for number in range(count)]


async def test_the_clients_transactional_produce_example_runs(broker: Broker, unique: Unique) -> None:
    """As examples/transactional_produce.py of aiokafka: an exception in the block aborts the transaction."""
    topic = unique("test-topic")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=unique("transactional"))
    await producer.start()
    try:
        with pytest.raises(ValueError, match="changed my mind"):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"Super transactional message")
                raise ValueError("changed my mind")
    finally:
        await producer.stop()
    assert await read(broker, topic) == []


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
