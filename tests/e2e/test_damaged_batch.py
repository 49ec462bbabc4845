"""A batch with a damaged header: Apache Kafka and Fencepost answer alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fencepost.protocol import errors
from fencepost.protocol.batch import LENGTH_AT
from fencepost.protocol.messages import CreateTopicsRequest, FetchRequest
from tests.readers.reading import READ_COMMITTED, READ_UNCOMMITTED, connect

PARTITIONS = 3


@pytest.mark.parametrize("product", ["fencepost", pytest.param("apache", marks=pytest.mark.java)])
@pytest.mark.parametrize("length", [-12, 0])
def test_a_damaged_length_is_a_corrupt_message_for_its_partition_only(
    length: int, product: str, request: pytest.FixtureRequest, unique: Callable[[str], str]
) -> None:
    kafka = request.getfixturevalue("start_broker")() if product == "fencepost" else request.getfixturevalue("apache")
    data: Path = kafka.data
    topic = unique("damaged")
    with connect(kafka.bootstrap_servers) as client:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic, "linger.ms": 0})
        client_topic = CreateTopicsRequest.CreatableTopic(topic, PARTITIONS, 1)
        assert client.call(CreateTopicsRequest([client_topic], 30_000), 5).topics[0].error_code == errors.NONE
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.produce(topic, b"value %d" % number, partition=index)
            (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
        path = data / f"{topic}-1" / f"{0:020d}.log"
        with path.open("r+b") as file:
            file.seek(LENGTH_AT)
            file.write(length.to_bytes(4, "big", signed=True))
    if product == "fencepost":
        kafka.restart()  # A running broker knows where its own batches are. Apache Kafka would not start again.
    with connect(kafka.bootstrap_servers) as client:
        for isolation_level, max_bytes in ((READ_COMMITTED, 1 << 20), (READ_COMMITTED, 10), (READ_UNCOMMITTED, 10)):
            wanted = [
                FetchRequest.FetchPartition(i, fetch_offset=0, partition_max_bytes=max_bytes) for i in range(PARTITIONS)
            ]
            asked = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 22,
                isolation_level=isolation_level,
                topics=[FetchRequest.FetchTopic(topic, partitions=wanted)],
            )
            found = client.call(asked, 11).responses[0].partitions
            codes = {p.partition_index: p.error_code for p in found}
            assert codes == {0: errors.NONE, 1: errors.CORRUPT_MESSAGE, 2: errors.NONE}
