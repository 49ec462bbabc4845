"""The frames of the client and which replies it accepts; retries until the deadline, or while they are worth it."""

from __future__ import annotations

import struct

import pytest

from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import DeadlinePassed, Refused, Unreachable
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


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


def waited_s(error: Unreachable, deadline_s: float) -> float:
    clock = Clock()

    def attempt() -> None:
        raise error

    with pytest.raises(DeadlinePassed):
        retry(attempt, deadline_s, clock=lambda: clock.now_s, sleep=clock.sleep)
    return clock.now_s


def test_an_error_is_retried_no_longer_than_its_patience() -> None:
    impatient = Unreachable("nothing listens")
    impatient.patience_s = 1.0
    assert waited_s(impatient, 10) <= 1 < waited_s(Unreachable("no route"), 10) <= 10
    assert waited_s(impatient, 0.5) <= 0.5


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"])
def test_a_new_client_has_little_patience_with_ports_where_nothing_listens(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Refused("cannot connect")

    monkeypatch.setattr("fencepost.client.client.BrokerConnection", refuse)
    with pytest.raises(Unreachable) as refused:
        KafkaClient({"bootstrap.servers": bootstrap}, first_patience_s=1.0).any_broker()
    assert refused.value.patience_s == 1.0
