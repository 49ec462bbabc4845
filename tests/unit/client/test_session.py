"""The frames of the client: which replies it accepts."""

from __future__ import annotations

import struct

import pytest

from fencepost.client.session import Session, Unsupported
from fencepost.protocol import errors
from fencepost.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, ListTransactionsRequest
from fencepost.protocol.schema import Malformed


def test_a_broker_that_does_not_know_the_version_of_api_versions_answers_in_the_first() -> None:
    """Kafka before 2.4 then lists no versions; a later one lists its versions of ApiVersions (KIP-511)."""
    session = Session("test")
    for ranges, keys in (([], []), ([(18, 0, 2)], [(18, 0, 2)])):
        _, sent = session.encode(ApiVersionsRequest("test", "1"), 3)
        reply = struct.pack(">ihi", sent.correlation_id, errors.UNSUPPORTED_VERSION, len(ranges))
        response = session.decode(reply + b"".join(struct.pack(">hhh", *r) for r in ranges), sent)
        assert isinstance(response, ApiVersionsResponse)
        assert response.error_code == errors.UNSUPPORTED_VERSION
        assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == keys


@pytest.mark.parametrize("rest", [b"", b"\x80", b"\x01", b"\x01\x00\x7f", b"hello"], ids=repr)
def test_a_reply_that_ends_too_early_is_malformed(rest: bytes) -> None:
    session = Session("test")
    _, sent = session.encode(ListTransactionsRequest(), 0)
    with pytest.raises(Malformed):
        session.decode(struct.pack(">i", sent.correlation_id) + rest, sent)


def test_the_error_for_an_api_that_the_broker_does_not_serve_names_no_versions() -> None:
    session = Session("test")
    session.learn(ApiVersionsResponse(0, [ApiVersionsResponse.ApiVersion(18, 0, 2)]))
    with pytest.raises(Unsupported, match=r"^the broker does not serve ListTransactionsRequest$"):
        session.version_for(ListTransactionsRequest)
