"""The counter of fencings counts requests, as its help says."""

from __future__ import annotations

import pytest

from fencepost.protocol import errors
from fencepost.protocol.batch import TRANSACTIONAL
from fencepost.protocol.messages import CreateTopicsRequest, InitProducerIdRequest, ProduceRequest
from fencepost.protocol.records import Record, encode_records
from tests.pure_broker import PureBroker


@pytest.mark.parametrize("version", [11, 12], ids=["TV1", "TV2"])
def test_a_fenced_produce_to_three_partitions_counts_once(version: int) -> None:
    broker = PureBroker()
    broker.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 3, 1)], 1000), 5)
    old = broker.call(InitProducerIdRequest("orders-1", 60_000), 4)
    broker.call(InitProducerIdRequest("orders-1", 60_000), 4)
    batch = encode_records(
        [Record(0, broker.now_ms, None, b"late")], 0, TRANSACTIONAL, old.producer_id, old.producer_epoch, 0
    )
    parts = [ProduceRequest.PartitionProduceData(i, batch) for i in range(3)]
    request = ProduceRequest("orders-1", -1, 1000, [ProduceRequest.TopicProduceData("orders", partition_data=parts)])
    for attempt in (1, 2):
        answers = broker.call(request, version).responses[0].partition_responses
        assert [p.error_code for p in answers] == [errors.INVALID_PRODUCER_EPOCH] * 3
        assert broker.cluster.txns.counts.fenced == attempt
