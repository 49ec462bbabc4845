"""Hand-written encoders of the hot path give the same bytes as the definitions, in every version."""

from __future__ import annotations

from random import Random

import pytest

from fencepost.broker.api import APIS, k00_produce, k01_fetch, k24_add_partitions_to_txn, k26_end_txn
from fencepost.broker.fetches import Wanted
from fencepost.machines.partition.partition import AppendResult, Fetched
from fencepost.machines.txn.records import decode_key, decode_value, encode_key, encode_value, group_by_topic
from fencepost.machines.txn.states import Txn, TxnState
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    FetchResponse,
    ProduceResponse,
    TransactionLogKey,
    TransactionLogValue,
)
from fencepost.protocol.produced import RecordError
from fencepost.protocol.transaction_version import TV0, TransactionVersion

PRODUCE, FETCH = APIS[0], APIS[1]


@pytest.mark.parametrize("version", range(PRODUCE.first, PRODUCE.last + 1))
@pytest.mark.parametrize("message", [None, "", "why not: é", "x" * 200])
@pytest.mark.parametrize("error", [0, 47])
@pytest.mark.parametrize("bad_records", [0, 1, 130])
def test_a_partitions_produce_result_is_laid_out_as_defined(
    version: int, message: str | None, error: int, bad_records: int
) -> None:
    out = bytearray()
    found = [RecordError(3 * n, "no key: é" * n) for n in range(bad_records if message is not None else 0)]
    result = AppendResult(error, 12345678901, -1, 3, message, record_errors=found)
    k00_produce._encode_result(out, 7, result, version)
    shown = [ProduceResponse.BatchIndexAndErrorMessage(*each) for each in found]
    partition = ProduceResponse.PartitionProduceResponse(7, error, 12345678901, -1, 3, shown, message)
    topic = ProduceResponse.TopicProduceResponse("t", bytes(16), [partition])
    whole = ProduceResponse([topic]).encode(version)
    # Around the partition: one topic with its name or id, one partition; then tags and the throttle time.
    head, tail = (len(whole) - len(out) - 6, 6) if version >= 9 else (len(whole) - len(out) - 4, 4)
    assert whole[head : len(whole) - tail] == bytes(out)


def random_results(rng: Random, version: int) -> list[k01_fetch.Result]:
    results = []
    for topic in range(rng.choice((0, 1, 3))):
        topic_id = bytes([topic + 1]) * 16 if version >= 13 else bytes(16)
        for index in range(rng.choice((1, 2, 130))):
            aborted = rng.choice((None, [], [(5, 10)], [(n, n * 7) for n in range(130)]))
            records = rng.choice((b"", b"r", rng.randbytes(127), rng.randbytes(500)))
            fetched = Fetched(rng.choice((0, 3)), records, rng.randrange(1 << 40), -1, rng.randrange(100), aborted)
            results.append(k01_fetch.Result(Wanted(f"topic-{topic}", topic_id, index, 0, 0, -1), fetched))
    return results


def expected_response(error: int, session_id: int, results: list[k01_fetch.Result]) -> FetchResponse:
    topics: dict[tuple[str, bytes], FetchResponse.FetchableTopicResponse] = {}
    for wanted, fetched in results:
        key = (wanted.topic, wanted.topic_id)
        topic = topics.setdefault(key, FetchResponse.FetchableTopicResponse(wanted.topic, wanted.topic_id, []))
        aborted = fetched.aborted
        assert isinstance(topic.partitions, list)
        topic.partitions.append(
            FetchResponse.PartitionData(
                wanted.partition,
                fetched.error,
                fetched.high_watermark,
                fetched.last_stable_offset,
                fetched.log_start_offset,
                FetchResponse.EpochEndOffset(),
                FetchResponse.LeaderIdAndEpoch(),
                FetchResponse.SnapshotId(),
                None if aborted is None else [FetchResponse.AbortedTransaction(*a) for a in aborted],
                -1,
                bytes(fetched.records),
            )
        )
    return FetchResponse(0, error, session_id, list(topics.values()))


@pytest.mark.parametrize("version", range(FETCH.first, FETCH.last + 1))
@pytest.mark.parametrize("seed", range(10))
def test_a_fetch_response_is_laid_out_as_defined(version: int, seed: int) -> None:
    results = random_results(Random(seed), version)
    parts = k01_fetch._encode(version, 70 if seed == 0 else 0, seed * 1000, results)
    expected = expected_response(70 if seed == 0 else 0, seed * 1000, results)
    assert b"".join(parts) == expected.encode(version)


def error_of(outcome: k24_add_partitions_to_txn.Outcome, topic: str, index: int) -> int:
    return outcome if isinstance(outcome, int) else outcome[topic, index]


@pytest.mark.parametrize("version", range(4))
def test_an_add_partitions_response_is_laid_out_as_defined(version: int) -> None:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topic_result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    result = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    topics = [kind("orders", [0, 1]), kind("é" * 100, list(range(150))), kind("none", [])]
    outcomes: list[k24_add_partitions_to_txn.Outcome] = [
        0,
        51,
        {(topic.name, index): index % 50 for topic in topics for index in topic.partitions},
    ]
    for outcome in outcomes:
        expected = AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                topic_result(t.name, [result(i, error_of(outcome, t.name, i)) for i in t.partitions]) for t in topics
            ]
        )
        assert k24_add_partitions_to_txn.encode(version, topics, outcome) == expected.encode(version)


@pytest.mark.parametrize("version", range(6))
def test_an_end_txn_response_is_laid_out_as_defined(version: int) -> None:
    for error, producer_id, epoch in ((0, 1 << 40, 32766), (90, -1, -1)):
        expected = EndTxnResponse(0, error, producer_id, epoch).encode(version)
        assert k26_end_txn.encode(version, error, producer_id, epoch) == expected


def random_txn(rng: Random) -> Txn:
    partitions = frozenset((f"topic-{rng.randrange(5)}", rng.randrange(100)) for _ in range(rng.choice((0, 1, 3, 200))))
    state = rng.choice(list(TxnState))
    return Txn(
        rng.choice(("t", "é" * 50, "x" * 300)),
        rng.randrange(1 << 50),
        rng.randrange(-1, 32768),
        rng.randrange(1 << 31),
        state,
        frozenset() if state is TxnState.EMPTY else partitions,
        rng.choice((-1, 1_700_000_000_000)),
        1_700_000_000_000,
        rng.choice((-1, 5)),
        rng.choice((-1, 6)),
        rng.choice(list(TransactionVersion)),
    )


@pytest.mark.parametrize("transaction_version", TransactionVersion)
@pytest.mark.parametrize("seed", range(100))
def test_a_state_record_is_laid_out_as_defined(transaction_version: TransactionVersion, seed: int) -> None:
    txn = random_txn(Random(seed))
    version = 1 if transaction_version or txn.client_transaction_version == 2 else 0
    kind = TransactionLogValue.PartitionsSchema
    partitions = [kind(topic, indexes) for topic, indexes in group_by_topic(txn.partitions).items()]
    expected = TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None if txn.state is TxnState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.start_ms,
        client_transaction_version=txn.client_transaction_version,
    )
    value = encode_value(txn, transaction_version)
    assert value == version.to_bytes(2, "big") + expected.encode(version)
    if version == 0:  # The old layout has no fields for these.
        txn = txn._replace(previous_producer_id=-1, next_producer_id=-1, client_transaction_version=TV0)
    assert decode_value(txn.transactional_id, value) == txn


def test_the_key_of_a_state_record_is_laid_out_as_defined() -> None:
    for name in ("t", "é" * 50, "x" * 300):
        key = encode_key(name)
        assert key == b"\0\0" + TransactionLogKey(name).encode(0)
        assert decode_key(key) == name
    assert decode_key(b"\0\1whatever") is None
