"""Decoding the first bytes of requests and answers: every version, cut off anywhere, or damaged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fencepost.broker.api import APIS
from fencepost.broker.rpcs import KEPT_BYTES, KEPT_REPLY_BYTES, NAMES, KeptRpc, find_rpcs, read_rpc
from fencepost.protocol import errors, messages
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from fencepost.protocol.schema import Message
from tests.wire.raw_client import encode_frame

AT_MS = 1_800_000_000_000
DONE_NS = AT_MS * 1_000_000 + 2_500_000
ID = "orders-sink"
TOPIC_ID = bytes(range(16))
BATCH = encode_batch([(b"k", b"v" * 1000)], AT_MS, 7, 4, 0, transactional=True)

Partition = ProduceRequest.PartitionProduceData
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Committed = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic

REQUESTS: dict[str, tuple[Message, Message, str]] = {
    "Produce": (
        ProduceRequest(ID, -1, 30_000, [ProduceRequest.TopicProduceData("orders", TOPIC_ID, [Partition(2, BATCH)])]),
        ProduceResponse(
            [
                ProduceResponse.TopicProduceResponse(
                    "orders",
                    TOPIC_ID,
                    [ProduceResponse.PartitionProduceResponse(2, errors.INVALID_PRODUCER_EPOCH)],
                )
            ]
        ),
        "orders-2",
    ),
    "InitProducerId": (
        InitProducerIdRequest(ID, 60_000, 7, 4),
        InitProducerIdResponse(error_code=errors.INVALID_PRODUCER_EPOCH),
        "timeout 60000 ms",
    ),
    "AddPartitionsToTxn": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=4,
            v3_and_below_topics=[Topic("orders", [0, 2]), Topic("audit", [1])],
        ),
        AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                Result("orders", [PartitionResult(0), PartitionResult(2, errors.INVALID_PRODUCER_EPOCH)])
            ]
        ),
        "orders-0, orders-2, audit-1",
    ),
    "AddOffsetsToTxn": (
        AddOffsetsToTxnRequest(ID, 7, 4, "billing"),
        AddOffsetsToTxnResponse(error_code=errors.INVALID_PRODUCER_EPOCH),
        "group billing",
    ),
    "EndTxn": (EndTxnRequest(ID, 7, 4, True), EndTxnResponse(error_code=errors.INVALID_PRODUCER_EPOCH), "commit"),
    "TxnOffsetCommit": (
        TxnOffsetCommitRequest(ID, "billing", 7, 4),
        TxnOffsetCommitResponse(
            topics=[
                Committed(
                    "orders",
                    [TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(0, errors.INVALID_PRODUCER_EPOCH)],
                )
            ]
        ),
        "group billing",
    ),
}
LONG_ANSWERS: dict[str, Callable[[list[int]], Message]] = {
    "Produce": lambda codes: ProduceResponse(
        [
            ProduceResponse.TopicProduceResponse(
                "orders",
                TOPIC_ID,
                [
                    ProduceResponse.PartitionProduceResponse(n, code, 5, 6, 7, error_message="no" if code else None)
                    for n, code in enumerate(codes)
                ],
            )
        ]
    ),
    "AddPartitionsToTxn": lambda codes: AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[Result("orders", [PartitionResult(n, code) for n, code in enumerate(codes)])]
    ),
    "TxnOffsetCommit": lambda codes: TxnOffsetCommitResponse(
        topics=[
            Committed(f"topic-{n}", [TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(0, code)])
            for n, code in enumerate(codes)
        ]
    ),
}
VERSIONS = [
    (api.name, version)
    for api in APIS.values()
    if api.name in REQUESTS
    # Only brokers send AddPartitionsToTxn from v4 on.
    for version in range(api.first, 4 if api.name == "AddPartitionsToTxn" else api.last + 1)
]


def kept(name: str, version: int, reply: bytes | None = b"", at_ms: int = AT_MS) -> KeptRpc:
    return at_ms, encode_frame(REQUESTS[name][0], version, client_id="shop-7")[:KEPT_BYTES], reply, DONE_NS


def test_all_that_is_kept_is_read() -> None:
    assert sorted(NAMES.values()) == sorted(REQUESTS)


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_a_request_says_who_asked_for_what_and_its_answer_what_came_of_it(name: str, version: int) -> None:
    _, response, about = REQUESTS[name]
    seen = read_rpc(ID, kept(name, version, response.encode(version)), "10.0.0.9", 40_000, lambda topic_id: "orders")
    assert seen is not None
    assert (seen.at_ms, seen.name, seen.version, seen.client_id) == (AT_MS, name, version, "shop-7")
    assert (seen.host, seen.port) == ("10.0.0.9", 40_000)
    names_producer = name != "InitProducerId" or version >= 3
    assert (seen.producer_id, seen.producer_epoch) == ((7, 4) if names_producer else (-1, -1))
    assert seen.about == about
    assert (seen.error_code, seen.duration_us) == (errors.INVALID_PRODUCER_EPOCH, 2500)


@pytest.mark.parametrize("name", ["Produce", "AddPartitionsToTxn", "TxnOffsetCommit"])
@pytest.mark.parametrize("place", [0, 7, 5000])
def test_an_answer_that_was_cut_off_tells_the_first_error_that_was_kept(name: str, place: int) -> None:
    codes = [0] * 6000
    codes[place] = errors.INVALID_PRODUCER_EPOCH
    for version in [version for known, version in VERSIONS if known == name]:
        reply = LONG_ANSWERS[name](codes).encode(version)[:KEPT_REPLY_BYTES]
        assert len(reply) == KEPT_REPLY_BYTES
        seen = read_rpc(ID, kept(name, version, reply), "", 0)
        assert seen is not None
        assert seen.error_code == (0 if place == 5000 else errors.INVALID_PRODUCER_EPOCH)


def test_a_request_without_an_answer_is_in_flight() -> None:
    seen = read_rpc(ID, kept("EndTxn", 4, None), "", 0)
    assert seen is not None
    assert (seen.error_code, seen.duration_us) == (errors.NONE, -1)


def test_requests_of_other_ids_are_passed_over() -> None:
    for other in ("orders", "orders-sink-2", "sink", "shop-7", ""):
        assert read_rpc(other, kept("EndTxn", 4), "", 0) is None
    topic = ProduceRequest.TopicProduceData(ID, partition_data=[Partition(0, BATCH)])
    plain = ProduceRequest(None, -1, 30_000, [topic])
    assert read_rpc(ID, (AT_MS, encode_frame(plain, 9), b"", DONE_NS), "", 0) is None, "that is the name of a topic"


def test_a_long_list_is_shown_as_far_as_it_was_kept() -> None:
    topics = [Topic(f"a-topic-with-a-long-name-{n}", [0]) for n in range(20)]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=4,
        v3_and_below_topics=topics,
    )
    seen = read_rpc(ID, (AT_MS, encode_frame(request, 3)[:KEPT_BYTES], b"", DONE_NS), "", 0)
    assert seen is not None
    assert seen.about.startswith("a-topic-with-a-long-name-0-0, a-topic-with-a-long-name-1-0")
    assert seen.about.endswith("...")
    assert seen.producer_id == 7


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_whatever_was_kept_nothing_breaks(name: str, version: int) -> None:
    """Requests may be cut off anywhere and may be garbage; so may answers, in this test."""
    rng = Random(f"{name} {version}")
    at_ms, frame, _, done_ns = kept(name, version)
    for size in range(10, len(frame)):
        read_rpc(ID, (at_ms, frame[:size], b"", done_ns), "", 0)
    for _ in range(200):
        damaged = bytearray(frame)
        for _ in range(3):
            damaged[rng.randrange(10, len(damaged))] = rng.randrange(256)
        read_rpc(ID, (at_ms, bytes(damaged), rng.randbytes(rng.randrange(40)), done_ns), "", 0)


def test_the_order_is_that_of_the_answers() -> None:
    early = (AT_MS, kept("AddPartitionsToTxn", 0)[1], b"", AT_MS * 1_000_000 + 1_000_000)
    late = (AT_MS, kept("Produce", 9)[1], b"", AT_MS * 1_000_000 + 9_000_000)
    waiting = (AT_MS - 50, kept("EndTxn", 4)[1], None, AT_MS * 1_000_000)
    found = find_rpcs(ID, [("a", 1, [waiting, late]), ("b", 2, [early])])
    assert [(rpc.name, rpc.host) for rpc in found] == [("AddPartitionsToTxn", "b"), ("Produce", "a"), ("EndTxn", "a")]


def test_every_answer_has_a_reader() -> None:
    for name in NAMES.values():
        assert hasattr(messages, f"{name}Response")
