"""A broker with as many transactional ids, partitions and consumer groups as a large cluster has, made in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.client.client import GROUP, TRANSACTION
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.testing import Broker
from tests.readers.reading import connect
from tests.wire.raw_client import RawClient

IDS, TOPICS, PARTITIONS_PER_TOPIC = 10_000, 40, 50
GROUPS, PARTITIONS_PER_GROUP = 5_000, 4
# Groups with an offset in an open transaction, spread over the partitions of `__consumer_offsets`.
PENDING = 100
# Of a hundred ids, so many have an open transaction.
OPEN_OF_100 = 2
TIMEOUT_MS = 3_600_000
SETTINGS = {"transaction.max.timeout.ms": str(TIMEOUT_MS)}


@contextmanager
def large_cluster() -> Iterator[Broker]:
    """10,000 ids, of which some are open and the others committed once, 2,000 partitions, and 5,000 groups."""
    with Broker(settings=SETTINGS) as broker, connect(broker.bootstrap_servers) as client:
        topic = CreateTopicsRequest.CreatableTopic
        topics = [topic(f"orders-{n}", PARTITIONS_PER_TOPIC, 1) for n in range(TOPICS)]
        created = client.call(CreateTopicsRequest(topics, 60_000), version=5)
        assert {t.error_code for t in created.topics} == {errors.NONE}
        client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["sink-0"]), version=4)
        for n in range(IDS):
            topic_name, partition = f"orders-{n % TOPICS}", n // TOPICS % PARTITIONS_PER_TOPIC
            run_transaction(client, f"sink-{n}", topic_name, partition, ends=n % 100 >= OPEN_OF_100)
        client.call(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["readers-0"]), version=4)
        for n in range(GROUPS):
            commit_offsets(client, f"readers-{n}", f"orders-{n % TOPICS}", range(PARTITIONS_PER_GROUP))
        for n in range(PENDING):
            leave_offsets_open(client, f"mover-{n}", f"readers-{n}", f"orders-{n % TOPICS}")
        yield broker


def commit_offsets(client: RawClient, group_id: str, topic: str, partitions: Iterable[int]) -> None:
    """The offset 1 on some partitions, for a group without members."""
    at = [OffsetCommitRequest.OffsetCommitRequestPartition(partition, 1) for partition in partitions]
    request = OffsetCommitRequest(group_id, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(topic, partitions=at)])
    for partition in client.call(request, version=8).topics[0].partitions:
        _sound(partition)


def leave_offsets_open(client: RawClient, id_: str, group_id: str, topic: str) -> None:
    """An offset in a transaction that does not end, the first of the group for its partition."""
    who = _sound(client.call(InitProducerIdRequest(id_, TIMEOUT_MS, -1, -1), version=4))
    at = [TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(PARTITIONS_PER_GROUP, 1)]
    topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, at)]
    request = TxnOffsetCommitRequest(id_, group_id, who.producer_id, who.producer_epoch, topics=topics)
    _sound(client.call(request, version=5).topics[0].partitions[0])


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
