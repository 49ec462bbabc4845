"""Where the lease service listens."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from fencepost.spark.lease.client import LeaseAddress, LeaseClient
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.lease.port import host_port, listen, without_brackets
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_an_ipv6_address_has_brackets_in_messages_and_none_for_sockets() -> None:
    assert without_brackets("[::1]") == "::1"
    assert without_brackets("::1") == "::1"
    assert without_brackets("driver.example") == "driver.example"
    assert host_port("::1", 40000) == "[::1]:40000"
    assert host_port("10.0.0.1", 40000) == "10.0.0.1:40000"
    assert repr(LeaseAddress("fe80::1", 1, "secret")) == "LeaseAddress([fe80::1]:1)"


def test_a_name_with_addresses_of_both_kinds_is_listened_on_where_java_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with closing(listen("driver", range(1))) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("bind", ["::1", "::"])
def test_tasks_reach_a_driver_with_an_ipv6_address(bind: str) -> None:
    with LeaseServer("::1", bind_host=bind) as server:
        address = server.open(LeaseTable(lease_timeout_ms=30_000), lambda _: None)
        server.offer(0, {"settings": {"sasl.password": "correct horse"}})
        with LeaseClient(address, TaskAttempt(0, 0, 1), wants_plan=True) as client:
            assert client.plan == {"settings": {"sasl.password": "correct horse"}}
        server.close()
