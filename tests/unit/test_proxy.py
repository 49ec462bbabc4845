"""The proxy that loses and cuts requests of tests."""

from __future__ import annotations

import socket

import pytest

from fencepost.protocol.messages import ProduceRequest
from tests.wire.proxy import _LENGTH, Lost, Proxy, _receive_frame


def framed(*bodies: bytes) -> bytes:
    return b"".join(_LENGTH.pack(len(body)) + body for body in bodies)


def test_of_two_connections_with_enough_requests_for_the_same_cut_one_is_cut_and_the_other_passes_on() -> None:
    with Proxy("127.0.0.1:1") as proxy:
        proxy.cut(ProduceRequest, executed=1, answered=0)
        api_key = ProduceRequest.definition.api_key
        cuts = [proxy._next_cut(api_key) for _ in range(2)]  # Both connections have seen their first request.
        for cut, is_cut in zip(cuts, (True, False), strict=True):
            assert cut is not None
            client, proxys_client = socket.socketpair()
            broker, proxys_broker = socket.socketpair()
            with client, proxys_client, broker, proxys_broker:
                client.sendall(framed(b"second"))
                broker.sendall(framed(b"reply 1", b"reply 2"))
                if is_cut:
                    with pytest.raises(Lost):
                        proxy._pass_several(cut, b"first", proxys_client, proxys_broker)
                    assert _receive_frame(broker) == b"first"
                else:
                    proxy._pass_several(cut, b"first", proxys_client, proxys_broker)
                    assert [_receive_frame(broker) for _ in range(2)] == [b"first", b"second"]
                    assert [_receive_frame(client) for _ in range(2)] == [b"reply 1", b"reply 2"]
        assert proxy.unsprung == 0
