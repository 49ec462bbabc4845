"""The requests and replies of a transaction, as the tap shows them."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fencepost.protocol.schema import Message
from fencepost.tap.decoding import Decoded, WireEvent, decode_reply, decode_request, topic_names_in
from fencepost.tap.text import line_of
from tests.wire.raw_client import encode_frame

TOPIC_ID = bytes(15) + b"\7"
NAMES = {TOPIC_ID: "orders"}
BATCH = encode_batch([(b"k", b"v"), (b"k", b"w")], 1, producer_id=4, producer_epoch=2, base_sequence=9)


def name_of(topic_id: bytes) -> str:
    return NAMES.get(topic_id, topic_id.hex())


def asked(request: Message, version: int) -> Decoded | None:
    frame = memoryview(encode_frame(request, version))
    return decode_request(frame, request.definition.api_key, version, name_of, with_fetches=True)


def answered(response: Message, version: int) -> Decoded:
    flexible = b"\0" if response.is_flexible(version) else b""
    frame = memoryview(b"\0\0\0\1" + flexible + response.encode(version))
    return decode_reply(frame, response.definition.api_key, version, Decoded("t", 4, 2), name_of)


def written(*topics: tuple[str, bytes]) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(3, BATCH), ProduceRequest.PartitionProduceData(4, BATCH)]
    return ProduceRequest("t", -1, 1000, [ProduceRequest.TopicProduceData(n, i, data) for n, i in topics])


ADD, COMMIT, MARK = AddPartitionsToTxnRequest, TxnOffsetCommitRequest, WriteTxnMarkersRequest
OFFSETS = [COMMIT.TxnOffsetCommitRequestTopic("in", [COMMIT.TxnOffsetCommitRequestPartition(0, 41)])]
TO_ADD = [ADD.AddPartitionsToTxnTopic("orders", [0, 1])]


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (InitProducerIdRequest("t", 60_000), 0, Decoded("t", None, None, {"transaction_timeout_ms": 60_000})),
        (InitProducerIdRequest("t", 60_000, 4, 2), 5, Decoded("t", 4, 2, {"transaction_timeout_ms": 60_000})),
        (InitProducerIdRequest(None, 60_000), 5, None),
        (
            ADD(v3_and_below_transactional_id="t", v3_and_below_producer_id=4, v3_and_below_producer_epoch=2,
                v3_and_below_topics=TO_ADD),
            3,
            Decoded("t", 4, 2, {"partitions": ["orders-0", "orders-1"]}),
        ),
        (
            ADD([ADD.AddPartitionsToTxnTransaction("t", 4, 2, True, TO_ADD)]),
            5,
            Decoded("t", 4, 2, {"partitions": ["orders-0", "orders-1"]}),
        ),
        (AddOffsetsToTxnRequest("t", 4, 2, "g"), 4, Decoded("t", 4, 2, {"group_id": "g"})),
        (COMMIT("t", "g", 4, 2, topics=OFFSETS), 5, Decoded("t", 4, 2, {"group_id": "g", "offsets": {"in-0": 41}})),
        (EndTxnRequest("t", 4, 2, True), 5, Decoded("t", 4, 2, {"committed": True})),
        (EndTxnRequest("t", 4, 2, False), 0, Decoded("t", 4, 2, {"committed": False})),
        (FindCoordinatorRequest("t", 1), 3, Decoded("t")),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 6, Decoded("t")),
        (FindCoordinatorRequest("g", 0), 3, None),
        (HeartbeatRequest("g", 1, "m"), 4, None),
        (ProduceRequest(None, -1, 1000, []), 9, None),
        (
            MARK([MARK.WritableTxnMarker(4, 2, True, [MARK.WritableTxnMarkerTopic("orders", [0])], 7)]),
            1,
            Decoded(None, 4, 2, {"markers": [
                {"producer_id": 4, "producer_epoch": 2, "committed": True, "partitions": ["orders-0"]}
            ]}),
        ),
        (
            FetchRequest(isolation_level=1, topics=[
                FetchRequest.FetchTopic("orders", partitions=[FetchRequest.FetchPartition(0, fetch_offset=7)])
            ]),
            11,
            Decoded(about={"isolation": "read_committed", "offsets": {"orders-0": 7}}),
        ),
        (FetchRequest(isolation_level=0), 11, Decoded(about={"isolation": "read_uncommitted", "offsets": {}})),
        (
            written(("orders", TOPIC_ID)),
            8,
            Decoded("t", 4, 2, {
                "acks": -1, "partitions": ["orders-3"], "has_more_partitions": True, "base_sequence": 9, "records": 2,
            }),
        ),
        (
            written(("", TOPIC_ID)),
            13,
            Decoded("t", 4, 2, {
                "acks": -1, "partitions": ["orders-3"], "has_more_partitions": True, "base_sequence": 9, "records": 2,
            }),
        ),
    ],
)  # fmt: skip
def test_a_request_says_whose_it_is_and_what_it_asks_for(
    request_: Message, version: int, expected: Decoded | None
) -> None:
    assert asked(request_, version) == expected


def test_a_produce_request_that_is_cut_off_still_names_its_producer() -> None:
    frame = encode_frame(written(("orders", TOPIC_ID)), 9)
    begin = memoryview(frame[: frame.index(BATCH) + 61])
    found = decode_request(begin, 0, 9, name_of)
    assert found is not None
    assert (found.transactional_id, found.producer_id, found.producer_epoch) == ("t", 4, 2)


ADDED, COMMITTED, MARKED = AddPartitionsToTxnResponse, TxnOffsetCommitResponse, WriteTxnMarkersResponse
PRODUCED, FOUND = ProduceResponse, FindCoordinatorResponse


@pytest.mark.parametrize(
    ("response", "version", "error", "about"),
    [
        (InitProducerIdResponse(producer_id=9, producer_epoch=1), 5, "NONE", {}),
        (EndTxnResponse(error_code=errors.PRODUCER_FENCED), 4, "PRODUCER_FENCED", {}),
        (
            EndTxnResponse(producer_id=4, producer_epoch=3),
            5,
            "NONE",
            {"next_producer_id": 4, "next_producer_epoch": 3},
        ),
        (AddOffsetsToTxnResponse(error_code=errors.NOT_COORDINATOR), 4, "NOT_COORDINATOR", {}),
        (
            ADDED(results_by_topic_v3_and_below=[ADDED.AddPartitionsToTxnTopicResult("orders", [
                ADDED.AddPartitionsToTxnPartitionResult(0, 0),
                ADDED.AddPartitionsToTxnPartitionResult(1, errors.OPERATION_NOT_ATTEMPTED),
            ])]),
            3,
            "OPERATION_NOT_ATTEMPTED",
            {"partitions": ["orders-0"], "errors": {"orders-1": "OPERATION_NOT_ATTEMPTED"}},
        ),
        (
            COMMITTED(topics=[COMMITTED.TxnOffsetCommitResponseTopic("in", [
                COMMITTED.TxnOffsetCommitResponsePartition(0, 0)
            ])]),
            5,
            "NONE",
            {"partitions": ["in-0"]},
        ),
        (
            MARKED([MARKED.WritableTxnMarkerResult(4, [MARKED.WritableTxnMarkerTopicResult("orders", [
                MARKED.WritableTxnMarkerPartitionResult(0, errors.INVALID_PRODUCER_EPOCH)
            ])])]),
            1,
            "INVALID_PRODUCER_EPOCH",
            {"partitions": [], "errors": {"orders-0": "INVALID_PRODUCER_EPOCH"}},
        ),
        (
            PRODUCED([PRODUCED.TopicProduceResponse("", TOPIC_ID, [PRODUCED.PartitionProduceResponse(3, 0, 17)])]),
            13,
            "NONE",
            {"partitions": ["orders-3"], "base_offsets": {"orders-3": 17}},
        ),
        (
            FOUND(coordinators=[FOUND.Coordinator("t", 2, "kafka", 9092, 0)]),
            4,
            "NONE",
            {"coordinators": [{"node_id": 2, "host": "kafka", "port": 9092}]},
        ),
        (
            FOUND(error_code=errors.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1),
            3,
            "COORDINATOR_NOT_AVAILABLE",
            {"coordinators": []},
        ),
        (
            FetchResponse(responses=[FetchResponse.FetchableTopicResponse("orders", partitions=[
                FetchResponse.PartitionData(0, 0, 9, 7, records=b"abc")
            ])]),
            11,
            "NONE",
            {"partitions": {"orders-0": {
                "high_watermark": 9, "last_stable_offset": 7, "bytes": 3, "aborted_transactions": 0, "error": "NONE",
            }}},
        ),
    ],
)  # fmt: skip
def test_a_reply_has_its_errors_by_name(response: Message, version: int, error: str, about: dict[str, Any]) -> None:
    found = answered(response, version)
    assert (found.transactional_id, found.error, found.about) == ("t", error, about)
    is_new = isinstance(response, InitProducerIdResponse)
    assert (found.producer_id, found.producer_epoch) == ((9, 1) if is_new else (4, 2))


def test_a_reply_that_cannot_be_decoded_is_shown_as_such() -> None:
    found = decode_reply(memoryview(b"\0\0\0\1\0"), 26, 5, Decoded("t", 4, 2), name_of)
    assert (found.transactional_id, found.error) == ("t", None)
    assert "ends too early" in found.about["malformed"]


def test_names_of_topics_are_learned_from_metadata() -> None:
    topics = [MetadataResponse.MetadataResponseTopic(0, "orders", TOPIC_ID)]
    frame = b"\0\0\0\1\0" + MetadataResponse(topics=topics).encode(12)
    assert topic_names_in(memoryview(frame), 12) == NAMES
    assert topic_names_in(memoryview(b"\0\0\0\1"), 9) == {}
    assert topic_names_in(memoryview(b"\0\0\0\1"), 12) == {}


# --- as lines -----------------------------------------------------------------------------------------------


def event(kind: str, api: str, decoded: Decoded, **given: Any) -> WireEvent:
    common = {
        "at_us": 1_700_000_000_123_456, "kind": kind, "connection": 3, "client": "127.0.0.1:5000", "client_id": "svc",
        "broker": "kafka:9092", "node_id": 1, "api": api, "version": 5, "correlation_id": 7,
        "transactional_id": decoded.transactional_id, "producer_id": decoded.producer_id,
        "producer_epoch": decoded.producer_epoch, "about": decoded.about, "error": decoded.error,
        "duration_us": None, "fault": None,
    }  # fmt: skip
    return WireEvent(**common | given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (
            event("request", "EndTxn", Decoded("t", 4, 2, {"committed": True})),
            "22:13:20.123456  #3  svc  ->  EndTxn v5  t 4/2  commit",
        ),
        (
            event("reply", "EndTxn", Decoded("t", 4, 2, {}, "PRODUCER_FENCED"), duration_us=1600),
            "22:13:20.123456  #3  svc  <-  EndTxn v5  t 4/2  PRODUCER_FENCED  1.6 ms",
        ),
        (
            event("unanswered", "EndTxn", Decoded("t", 4, 2, {"committed": True}), client_id=""),
            "22:13:20.123456  #3  127.0.0.1:5000  --  EndTxn v5  t 4/2  no reply: the connection ended",
        ),
        (
            event("request", "Produce", Decoded("t", 4, 2, {"partitions": ["a-0"], "records": 2}), fault="delay 5 ms"),
            "22:13:20.123456  #3  svc  ->  Produce v5  t 4/2  a-0  2 records  [delay 5 ms]",
        ),
        (
            event("request", "AddPartitionsToTxn", Decoded("t", 4, 2, {"partitions": [f"a-{n}" for n in range(9)]})),
            "22:13:20.123456  #3  svc  ->  AddPartitionsToTxn v5  t 4/2  a-0, a-1, a-2, a-3 and 5 more",
        ),
        (
            event("request", "InitProducerId", Decoded("t\x1b[2J", about={"transaction_timeout_ms": 9})),
            r"22:13:20.123456  #3  svc  ->  InitProducerId v5  t\x1b[2J  timeout 9 ms",
        ),
    ],
)
def test_an_event_is_one_line_without_control_characters(seen: WireEvent, line: str) -> None:
    assert line_of(seen) == line
