"""A broker process answers other clients while it works off a request with thousands of names."""

from __future__ import annotations

import select
import socket
import struct

from fencepost.protocol import errors
from fencepost.protocol.messages import MetadataRequest
from fencepost.testing import Broker
from tests.wire.raw_client import RawClient, decode_reply, encode_frame

MANY = 3000
VERSION = 8


def test_another_client_sees_thousands_of_topics_come() -> None:
    request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=f"t{i}") for i in range(MANY)], True)
    frame = encode_frame(request, VERSION)
    seen: set[int] = set()
    with (
        Broker() as broker,
        RawClient("127.0.0.1", broker.port) as other,
        socket.create_connection(("127.0.0.1", broker.port), timeout=60) as sock,
    ):
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        while not select.select([sock], [], [], 0)[0]:
            seen.add(len(other.call(MetadataRequest(None, False), VERSION).topics))
        replies = sock.makefile("rb")
        reply = decode_reply(request, VERSION, replies.read(*struct.unpack(">i", replies.read(4))))
    assert {topic.error_code for topic in reply.topics} == {errors.NONE}
    assert seen - {0, MANY}
