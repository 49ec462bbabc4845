"""Replies with an error in them: for every API and version that has an error field."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fencepost.broker.api import APIS, Api
from fencepost.faults.errors_in_replies import can_carry_error, client_id_of, is_answered, refusal, stamped
from fencepost.protocol import errors, messages
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import Message
from fencepost.server.control import POINTS
from tests.wire.message_values import random_message
from tests.wire.raw_client import decode_reply, encode_frame

SOURCE = Path(__file__).resolve().parents[3] / "src" / "fencepost"
ERROR = errors.COORDINATOR_NOT_AVAILABLE
WITH_ERRORS = [(api, version) for api in APIS.values() if can_carry_error(api.key) for version in (api.first, api.last)]


def error_codes(value: Any) -> list[int]:
    """All error codes of a message, at every level."""
    if isinstance(value, list | tuple):
        return [code for item in value for code in error_codes(item)]
    if not hasattr(value, "__slots__") or isinstance(value, str | bytes):
        return []
    own = [getattr(value, name) for name in value.__slots__ if name.endswith("error_code")]
    return own + [code for name in value.__slots__ for code in error_codes(getattr(value, name))]


def refused(request: Message, version: int) -> Any:
    parts = refusal(encode_frame(request, version), ERROR)
    assert parts is not None
    reply = b"".join(parts)
    assert int.from_bytes(reply[:4], "big") == len(reply) - 4
    return decode_reply(request, version, reply[4:])


@pytest.mark.parametrize(("api", "version"), WITH_ERRORS, ids=lambda value: getattr(value, "name", str(value)))
def test_any_request_can_be_refused_and_any_reply_stamped(api: Api, version: int) -> None:
    rng = Random(f"{api.name} {version}")
    for _ in range(5):
        request = random_message(getattr(messages, f"{api.name}Request").definition, version, rng, tame=True)
        frame = encode_frame(request, version, client_id="svc-1")
        assert client_id_of(frame) == "svc-1"
        parts = refusal(frame, ERROR)
        if parts is not None:
            assert ERROR in error_codes(decode_reply(request, version, b"".join(parts)[4:]))
        response = random_message(getattr(messages, f"{api.name}Response").definition, version, rng, tame=True)
        header = bytes(8 + (request.is_flexible(version) and api.name != "ApiVersions"))
        parts = stamped(frame, [header, response.encode(version)], ERROR)
        if parts is not None:
            assert ERROR in error_codes(decode_reply(request, version, b"".join(parts)[4:]))


@pytest.mark.parametrize("version", [0, 5])
def test_the_error_of_a_message_without_parts_is_its_own(version: int) -> None:
    reply = refused(messages.EndTxnRequest("t", 7, 3, True), version)
    assert reply.error_code == ERROR
    assert (reply.producer_id, reply.producer_epoch) == (-1, -1)


def of_topics(topics: Any, partitions: str, partition: str, error: str) -> list[tuple[str, int, int]]:
    return [
        (getattr(t, "name", None) or t.topic, getattr(p, partition), getattr(p, error))
        for t in topics
        for p in getattr(t, partitions)
    ]


def test_every_partition_that_was_asked_for_has_its_error() -> None:
    due = [("a", 0, ERROR), ("a", 2, ERROR), ("b", 1, ERROR)]

    produce = ProduceRequest
    data = [produce.PartitionProduceData(0, b""), produce.PartitionProduceData(2, b"")]
    written = [
        produce.TopicProduceData("a", partition_data=data),
        produce.TopicProduceData("b", partition_data=[produce.PartitionProduceData(1, b"")]),
    ]
    reply = refused(produce(None, -1, 1000, written), 9)
    assert of_topics(reply.responses, "partition_responses", "index", "error_code") == due

    fetch = FetchRequest
    read = [
        fetch.FetchTopic("a", partitions=[fetch.FetchPartition(0), fetch.FetchPartition(2)]),
        fetch.FetchTopic("b", partitions=[fetch.FetchPartition(1)]),
    ]
    reply = refused(fetch(topics=read), 11)
    assert of_topics(reply.responses, "partitions", "partition_index", "error_code") == due
    assert reply.error_code == errors.NONE

    asked = {"a": [0, 2], "b": [1]}
    commit, txn_commit, look_up = OffsetCommitRequest, TxnOffsetCommitRequest, ListOffsetsRequest
    committed = [
        commit.OffsetCommitRequestTopic(name, partitions=[commit.OffsetCommitRequestPartition(i) for i in indexes])
        for name, indexes in asked.items()
    ]
    pending = [
        txn_commit.TxnOffsetCommitRequestTopic(name, [txn_commit.TxnOffsetCommitRequestPartition(i) for i in indexes])
        for name, indexes in asked.items()
    ]
    looked_up = [
        look_up.ListOffsetsTopic(name, [look_up.ListOffsetsPartition(i) for i in indexes])
        for name, indexes in asked.items()
    ]
    requests: list[tuple[Message, int]] = [
        (commit(topics=committed), 8),
        (txn_commit(topics=pending), 3),
        (look_up(topics=looked_up), 7),
    ]
    for request, version in requests:
        reply = refused(request, version)
        assert of_topics(reply.topics, "partitions", "partition_index", "error_code") == due

    add = AddPartitionsToTxnRequest
    added = [add.AddPartitionsToTxnTopic("a", [0, 2]), add.AddPartitionsToTxnTopic("b", [1])]
    reply = refused(add(v3_and_below_transactional_id="t", v3_and_below_topics=added), 3)
    results = reply.results_by_topic_v3_and_below
    assert of_topics(results, "results_by_partition", "partition_index", "partition_error_code") == due


def test_every_coordinator_that_was_looked_for_has_its_error() -> None:
    reply = refused(FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"]), 4)
    assert [(c.key, c.error_code) for c in reply.coordinators] == [("a", ERROR), ("b", ERROR)]
    assert refused(FindCoordinatorRequest("a", 1), 3).error_code == ERROR


def test_produce_without_acks_has_no_answer() -> None:
    assert not is_answered(encode_frame(ProduceRequest(None, 0, 1000, []), 9))
    assert is_answered(encode_frame(ProduceRequest(None, 1, 1000, []), 9))
    assert stamped(encode_frame(ProduceRequest(None, 0, 1000, []), 9), [], ERROR) is None


def test_the_points_at_which_a_broker_can_crash_are_those_in_the_source() -> None:
    source = "".join(path.read_text() for folder in ("broker", "server") for path in (SOURCE / folder).rglob("*.py"))
    assert sorted(POINTS) == sorted(set(re.findall(r'\b(?:reach\(|_at, |_open_files\.at[(,] ?)"([a-z.]+)"\)', source)))
