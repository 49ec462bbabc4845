"""A broker with as many transactional ids and partitions as a large cluster has, made in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.client.client import TRANSACTION
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.testing import Broker
from tests.readers.reading import connect
from tests.wire.raw_client import RawClient

IDS, TOPICS, PARTITIONS_PER_TOPIC = 10_000, 40, 50
# Of a hundred ids, so many have an open transaction.
OPEN_OF_100 = 2
TIMEOUT_MS = 3_600_000
SETTINGS = {"transaction.max.timeout.ms": str(TIMEOUT_MS)}


@contextmanager
def large_cluster() -> Iterator[Broker]:
    """10,000 ids, of which some are open and the others committed once, and 2,000 partitions."""
    with Broker(settings=SETTINGS) as broker, connect(broker.bootstrap_servers) as client:
        topic = CreateTopicsRequest.CreatableTopic
        topics = [topic(f"orders-{n}", PARTITIONS_PER_TOPIC, 1) for n in range(TOPICS)]
        created = client.call(CreateTopicsRequest(topics, 60_000), version=5)
        assert {t.error_code for t in created.topics} == {errors.NONE}
        client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["sink-0"]), version=4)
        for n in range(IDS):
            topic_name, partition = f"orders-{n % TOPICS}", n // TOPICS % PARTITIONS_PER_TOPIC
            run_transaction(client, f"sink-{n}", topic_name, partition, ends=n % 100 >= OPEN_OF_100)
        yield broker


def run_transaction(client: RawClient, id_: str, topic: str, partition: int, ends: bool = True) -> None:
    """One record in a transaction."""
    who = _sound(client.call(InitProducerIdRequest(id_, TIMEOUT_MS, -1, -1), version=4))
    batch = encode_batch([(b"k", b"v")], time.time_ns() // 1_000_000, who.producer_id, who.producer_epoch, 0, True)
    data = [ProduceRequest.PartitionProduceData(partition, batch)]
    topics = [ProduceRequest.TopicProduceData(topic, partition_data=data)]
    written = client.call(ProduceRequest(id_, -1, 30_000, topics), version=12)
    _sound(written.responses[0].partition_responses[0])
    if ends:
        _sound(client.call(EndTxnRequest(id_, who.producer_id, who.producer_epoch, True), version=5))


def _sound(reply: Any) -> Any:
    assert reply.error_code == errors.NONE, errors.name_of(reply.error_code)
    return reply
