"""Addresses in replies of APIs that the codec does not have. The others are in tests/properties/test_tap.py."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fencepost.protocol.schema import build_class, parse
from fencepost.tap.rewriting import SHARE_FETCH, SHARE_REPLIES, rewritten

# The fields are those of ShareFetchResponseData and ShareAcknowledgeResponseData of Apache Kafka 4.3.1.
CLASSES = {definition.api_key: build_class(definition) for definition in parse(SHARE_REPLIES)}


def share_reply(api_key: int, host: str, port: int) -> Any:
    kind: Any = CLASSES[api_key]
    leader = kind.LeaderIdAndEpoch(2, 7)
    if api_key == SHARE_FETCH:
        partition = kind.PartitionData(0, 6, "moved", 0, None, leader, b"records", [kind.AcquiredRecords(1, 2, 3)])
        topic = kind.ShareFetchableTopicResponse(bytes(15) + b"\1", [partition])
    else:
        topic = kind.ShareAcknowledgeTopicResponse(bytes(15) + b"\1", [kind.PartitionData(0, 6, "moved", leader)])
    return kind(error_message="?", responses=[topic], node_endpoints=[kind.NodeEndpoint(2, host, port, "rack")])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("api_key", CLASSES)
def test_the_new_leader_of_a_share_group_has_an_address_of_the_tap(api_key: int, version: int) -> None:
    def frame(host: str, port: int) -> bytes:
        body: bytes = b"\0\0\0\7\0" + share_reply(api_key, host, port).encode(version)
        return struct.pack(">i", len(body)) + body

    seen: list[tuple[int, str, int]] = []

    def address_of(*broker: Any) -> tuple[str, int]:
        seen.append(broker)
        return "tap.example.com", 9093

    assert bytes(rewritten(frame("kafka", 9092), api_key, version, address_of)) == frame("tap.example.com", 9093)
    assert seen == [(2, "kafka", 9092)]
