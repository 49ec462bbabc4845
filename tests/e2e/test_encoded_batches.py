"""What the vectorised encoder makes of rows, with real brokers, a real reader and the Java client's partitioner."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.client import KafkaClient
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import CODECS
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.records import Record
from fencepost.spark.encode.columns import Columns
from fencepost.spark.encode.partitioning import group_rows, murmur2
from fencepost.spark.encode.record_batches import (
    EncodedRecordBatch,
    encode_rows,
    finish_record_batch,
    halve_record_batch,
)
from fencepost.testing import Broker
from tests.engines.apache_kafka import ApacheKafka
from tests.engines.java import run_java
from tests.unit.spark.encode.partitioner import partition_for

PARTITIONS = 3
NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PROGRAMS = Path(__file__).parent / "clients" / "java"
# A new topic's leader may not know of it yet; Apache Kafka answers so too while it adds a partition to a transaction.
TRY_AGAIN = {
    errors.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NOT_LEADER_OR_FOLLOWER,
    errors.NOT_ENOUGH_REPLICAS,
    errors.CONCURRENT_TRANSACTIONS,
}


@pytest.fixture(scope="module", params=["broker", pytest.param("apache", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    kafka: Broker | ApacheKafka = request.getfixturevalue(request.param)
    return kafka.bootstrap_servers


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)


def produce(client: KafkaClient, who: ProducerIdentity, batch: EncodedRecordBatch, sequence: int) -> int:
    data = ProduceRequest.PartitionProduceData(batch.partition, finish_record_batch(batch, who, sequence))
    topic = ProduceRequest.TopicProduceData(batch.topic, partition_data=[data])
    request = ProduceRequest(who.transactional_id, -1, 30_000, [topic])
    for _ in range(500):
        response = client.send(client.leader(batch.topic, batch.partition), request, 12)
        code: int = response.responses[0].partition_responses[0].error_code
        if code not in TRY_AGAIN:
            break
        time.sleep(0.02)
    return code


def read_partition(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    """The first committed records of a partition, as librdkafka reads them; offsets count from 0."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Record] = []
    try:
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None, f"{len(found)} of {count} records came from {topic}-{partition}"
            assert not message.error(), message.error()
            kind, timestamp = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            found.append(Record(len(found), timestamp, message.key(), message.value(), headers_of(message)))
        return found
    finally:
        consumer.close()


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers = message.headers() or []
    assert isinstance(headers, list)
    found: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        assert not isinstance(value, str)
        found.append((name, value))
    return tuple(found)


@pytest.mark.parametrize("compression", CODECS)
def test_a_broker_takes_the_batches_and_a_reader_gets_every_record_back(bootstrap: str, compression: str) -> None:
    topic = f"encoded-{compression}"
    create(bootstrap, topic)
    rng = random.Random(compression)
    keys = [rng.choice([b"order-%d" % rng.randrange(200), b"", "clé-🦆".encode()]) for _ in range(6_000)]
    values = [None if rng.random() < 0.1 else b"refund %d;" % n * rng.randrange(30) for n in range(6_000)]
    times = [NOW_MS + rng.randrange(-100_000, 100_000) for _ in keys]
    headers = [((("n", b"%d" % n), ("none", None)) if n % 5 == 0 else ()) for n in range(6_000)]
    rows = pa.table(
        {
            "key": keys,
            "value": values,
            "timestamp": pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "headers": pa.array([[{"key": k, "value": v} for k, v in some] for some in headers], HEADERS),
        }
    )
    expected: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    for key, value, timestamp, some in zip(keys, values, times, headers):
        found = expected[partition_for(key, PARTITIONS)]
        found.append(Record(len(found), timestamp, key, value, some))

    with KafkaClient({"bootstrap.servers": bootstrap}) as client:
        owner = Transaction(client, f"encoder-{compression}", 60_000)
        owner.init()
        who = owner.begin()
        sequences = dict.fromkeys(range(PARTITIONS), 0)
        batches = list(
            encode_rows(
                rows,
                topic=topic,
                partition_count=lambda _: PARTITIONS,
                now_ms=NOW_MS,
                compression=compression,
                max_record_batch_bytes=50_000,
            )
        )
        assert len(batches) > PARTITIONS
        for batch in batches:
            owner.add_partitions([(topic, batch.partition)])
            assert produce(client, who, batch, sequences[batch.partition]) == errors.NONE
            assert produce(client, who, batch, sequences[batch.partition]) == errors.NONE, "a resend is a duplicate"
            sequences[batch.partition] += batch.record_count
        owner.commit()

    for partition, records in expected.items():
        assert read_partition(bootstrap, topic, partition, len(records)) == records


def test_a_topic_that_allows_less_takes_the_halves_of_a_batch(bootstrap: str) -> None:
    topic = "encoded-small"
    create(bootstrap, topic, **{"max.message.bytes": "20000"})
    values = [b"v" * 500 + b"%d" % n for n in range(60)]
    rows = pa.table({"value": values, "partition": pa.array([1] * 60, pa.int32())})
    (whole,) = encode_rows(rows, topic=topic, partition_count=lambda _: PARTITIONS, now_ms=NOW_MS)
    with KafkaClient({"bootstrap.servers": bootstrap}) as client:
        owner = Transaction(client, "encoder-small", 60_000)
        owner.init()
        who = owner.begin()
        owner.add_partitions([(topic, 1)])
        assert produce(client, who, whole, 0) == errors.MESSAGE_TOO_LARGE
        first, second = halve_record_batch(whole)
        assert produce(client, who, first, 0) == errors.NONE
        assert produce(client, who, second, first.record_count) == errors.NONE
        owner.commit()
    assert [record.value for record in read_partition(bootstrap, topic, 1, 60)] == values


def partitions_of(keys: pa.Array, count: int) -> list[int]:
    groups = group_rows(Columns.of(pa.table({"key": keys, "value": keys})), "t", lambda _: count)
    found = [-1] * len(keys)
    for (_, partition), begin, end in zip(groups.destinations, groups.bounds, groups.bounds[1:]):
        for row in groups.order[begin:end].tolist():
            found[row] = partition
    return found


@pytest.mark.java
def test_keys_go_where_the_java_client_sends_them(tmp_path: Path) -> None:
    rng = random.Random(20_260_101)
    keys = [rng.randbytes(rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 36, 100])) for _ in range(20_000)]
    keys += [f"clé-{rng.randrange(10**9)}".encode() for _ in range(5_000)]
    keys += [rng.randbytes(5_001)]
    file = tmp_path / "keys"
    file.write_text("".join(f"{key.hex()}\n" for key in keys))
    counts = [1, 6, 7, 64, 1_000]

    said = run_java(PROGRAMS / "DefaultPartitioner.java", str(file), *map(str, counts)).splitlines()

    array = pa.array(keys, pa.binary())
    columns = [murmur2(array).tolist(), *(partitions_of(array, count) for count in counts)]
    assert [" ".join(map(str, row)) for row in zip(*columns)] == said
