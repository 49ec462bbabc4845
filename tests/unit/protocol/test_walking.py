"""The error codes of replies, against a full decoder."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fencepost.broker.api import APIS
from fencepost.protocol import errors, messages
from fencepost.protocol.messages import FetchResponse, ProduceResponse
from fencepost.protocol.schema import Struct
from fencepost.protocol.walking import error_codes
from tests.wire.message_values import random_message

EACH_VERSION = [(api_key, v) for api_key, api in sorted(APIS.items()) for v in range(api.first, api.last + 1)]


def codes_of(message: Any, version: int) -> set[int]:
    """Every error code in a decoded response, except those in tagged fields."""
    definition = message.definition
    found: set[int] = set()

    def look(value: Any, fields: Any) -> None:
        for f in fields:
            if version not in f.versions or f.tag is not None:
                continue
            inner = getattr(value, f.name)
            if f.name.endswith("error_code"):
                found.add(inner)
            elif f.struct is not None and inner is not None:
                for each in inner if f.is_array else [inner]:
                    assert isinstance(each, Struct)
                    look(each, f.struct.fields)

    look(message, definition.fields)
    return found - {errors.NONE}


@pytest.mark.parametrize(("api_key", "version"), EACH_VERSION)
def test_a_walk_finds_what_a_decoder_finds(api_key: int, version: int) -> None:
    response_class = getattr(messages, f"{APIS[api_key].name}Response")
    rng = Random(api_key * 100 + version)
    for _ in range(5):
        body = random_message(response_class.definition, version, rng).encode(version)
        decoded, _ = response_class.decode(body, 0, version)
        assert set(error_codes(api_key, version, [body])) == codes_of(decoded, version)


def test_records_that_are_parts_of_their_own_are_passed() -> None:
    data = FetchResponse.PartitionData
    partitions = [
        data(0, errors.NONE, 5, records=b"r" * 1000),
        data(1, errors.OFFSET_OUT_OF_RANGE, -1, records=b""),
        data(2, errors.NONE, 5, records=b"s" * 70_000),
        data(3, errors.NOT_LEADER_OR_FOLLOWER, -1, records=None),
    ]
    topic = FetchResponse.FetchableTopicResponse("orders", partitions=partitions)
    body = FetchResponse(responses=[topic]).encode(12)
    first, second = body.index(b"r" * 1000), body.index(b"s" * 70_000)
    parts = [
        body[:first],
        body[first : first + 1000],
        body[first + 1000 : second],
        body[second : second + 70_000],
        body[second + 70_000 :],
    ]
    assert set(error_codes(1, 12, parts)) == {errors.OFFSET_OUT_OF_RANGE, errors.NOT_LEADER_OR_FOLLOWER}


def test_a_reply_without_errors_has_none() -> None:
    done = ProduceResponse.PartitionProduceResponse(0, errors.NONE, 17)
    body = ProduceResponse([ProduceResponse.TopicProduceResponse("orders", partition_responses=[done])]).encode(9)
    assert set(error_codes(0, 9, [body])) == set()
