"""The age of the transaction that holds the LSO, for Prometheus."""

from __future__ import annotations

import pytest

from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.records import Record, encode_records
from fencepost.server.metrics import BrokerCollector, Traffic
from tests.pure_broker import PureBroker

WITHOUT_VERIFICATION = {"transaction.partition.verification.enable": "false"}


def ages(broker: PureBroker) -> dict[str, float]:
    """`fencepost_lso_age_seconds` of partition 0, by topic."""
    collector = BrokerCollector(broker.cluster, [], Traffic(), lambda: broker.now_ms)
    samples = [sample for metric in collector.collect() for sample in metric.samples]
    return {s.labels["topic"]: s.value for s in samples if s.name == "fencepost_lso_age_seconds"}


@pytest.mark.parametrize("is_open_elsewhere", [False, True])
def test_a_hanging_transaction_is_as_old_as_its_last_record(is_open_elsewhere: bool) -> None:
    """Its id is known, but without a transaction, or with an older one that does not include the partition."""
    broker = PureBroker(WITHOUT_VERIFICATION)
    topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in ("hangs", "known")]
    broker.call(CreateTopicsRequest(topics, 10_000), 5)
    me = broker.call(InitProducerIdRequest("writer", 600_000, -1, -1), 4)
    known = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("known", [0])
    if is_open_elsewhere:
        broker.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="writer",
                v3_and_below_producer_id=me.producer_id,
                v3_and_below_producer_epoch=me.producer_epoch,
                v3_and_below_topics=[known],
            ),
            3,
        )
    broker.advance(20_000)
    for topic in ("hangs", "known") if is_open_elsewhere else ("hangs",):
        write(broker, topic, me.producer_id, me.producer_epoch)
    broker.advance(5_000)
    found = ages(broker)
    assert found["hangs"] == 5
    assert not is_open_elsewhere or found["known"] == 25, "as the coordinator says"


def write(broker: PureBroker, topic: str, producer_id: int, producer_epoch: int) -> None:
    batch = encode_records([Record(0, broker.now_ms, None, b"x", ())], 0, 0x10, producer_id, producer_epoch, 0)
    partition = ProduceRequest.PartitionProduceData(0, batch)
    data = ProduceRequest.TopicProduceData(topic, partition_data=[partition])
    reply = broker.call(ProduceRequest("writer", -1, 1000, [data]), 9)
    assert reply.responses[0].partition_responses[0].error_code == 0
