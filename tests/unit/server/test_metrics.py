"""What Prometheus is told about open and hanging transactions, and the names of the metrics."""

from __future__ import annotations

import pytest
from prometheus_client.core import Metric

from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.records import Record, encode_records
from fencepost.server.metrics import BrokerCollector, MetricsServer, Traffic
from tests.pure_broker import PureBroker

WITHOUT_VERIFICATION = {"transaction.partition.verification.enable": "false"}


def families(broker: PureBroker, traffic: Traffic | None = None) -> list[Metric]:
    return list(BrokerCollector(lambda: [broker.cluster], [], traffic or Traffic(), lambda: broker.now_ms).collect())


def ages(broker: PureBroker) -> dict[str, float]:
    """`fencepost_lso_age_seconds` of partition 0, by topic."""
    samples = [sample for metric in families(broker) for sample in metric.samples]
    return {s.labels["topic"]: s.value for s in samples if s.name == "fencepost_lso_age_seconds"}


def numbers(broker: PureBroker) -> dict[str, float]:
    """The metrics without labels."""
    return {s.name: s.value for metric in families(broker) for s in metric.samples if not s.labels}


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
    overall = numbers(broker)
    assert overall["fencepost_transactions_hanging"] == 1
    assert overall["fencepost_transactions_open"] == (2 if is_open_elsewhere else 1)
    assert overall["fencepost_transaction_oldest_seconds"] == (25 if is_open_elsewhere else 5)


def test_without_open_transactions_the_numbers_are_0() -> None:
    overall = numbers(PureBroker())
    assert overall["fencepost_transactions_hanging"] == 0
    assert overall["fencepost_transactions_open"] == 0
    assert overall["fencepost_transaction_oldest_seconds"] == 0


def test_names_follow_the_conventions_of_prometheus() -> None:
    traffic = Traffic()
    traffic.took(26, 0.001)
    traffic.errors[26, errors.PRODUCER_FENCED] += 1
    found = families(PureBroker(), traffic)
    for metric in found:
        assert metric.name.startswith("fencepost_")
        assert metric.documentation.endswith(".")
        is_old = metric.documentation.startswith("Deprecated: the same as ")
        assert metric.type != "histogram" or is_old or metric.name.endswith("_duration_seconds")
        for sample in metric.samples:
            assert (metric.type == "counter") == sample.name.endswith("_total")
    names = [metric.name for metric in found]
    assert len(set(names)) == len(names)
    new_names = {
        metric.documentation.split()[4].rstrip(",") for metric in found if "Deprecated" in metric.documentation
    }
    assert new_names <= set(names)


def test_errors_are_counted_by_api_and_name() -> None:
    traffic = Traffic()
    body = EndTxnResponse(error_code=errors.PRODUCER_FENCED).encode(4)
    for _ in range(2):
        traffic.answered(26, 4, [b"header", body])
    traffic.answered(26, 4, [b"header", EndTxnResponse().encode(4)])
    samples = [s for metric in families(PureBroker(), traffic) for s in metric.samples]
    failures = [(s.labels, s.value) for s in samples if s.name == "fencepost_request_errors_total"]
    assert failures == [({"api": "EndTxn", "error": "PRODUCER_FENCED"}, 2)]


@pytest.mark.parametrize(("is_ready", "status"), [(True, b"HTTP/1.1 200 OK"), (False, b"HTTP/1.1 503 Service")])
def test_a_broker_that_stops_is_healthy_and_not_ready(is_ready: bool, status: bytes) -> None:
    broker = PureBroker()
    server = MetricsServer(
        BrokerCollector(lambda: [broker.cluster], [], Traffic(), lambda: broker.now_ms), lambda: is_ready
    )
    assert server._response("GET /ready HTTP/1.1").startswith(status)
    assert server._response("GET /health HTTP/1.1").startswith(b"HTTP/1.1 200 OK")


def write(broker: PureBroker, topic: str, producer_id: int, producer_epoch: int) -> None:
    batch = encode_records([Record(0, broker.now_ms, None, b"x", ())], 0, 0x10, producer_id, producer_epoch, 0)
    partition = ProduceRequest.PartitionProduceData(0, batch)
    data = ProduceRequest.TopicProduceData(topic, partition_data=[partition])
    reply = broker.call(ProduceRequest("writer", -1, 1000, [data]), 9)
    assert reply.responses[0].partition_responses[0].error_code == 0
