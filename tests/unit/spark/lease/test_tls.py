"""The lease port with TLS: the driver makes a certificate, and tasks know the driver by its fingerprint."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fencepost.client.failures import BadClientSetting
from fencepost.spark.lease import connections
from fencepost.spark.lease.client import DriverUnreachable, LeaseClient
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import make_tls

TASK = TaskAttempt(1, 0, 1)


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with LeaseServer("127.0.0.1", tls=make_tls()) as running:
        yield running


def test_a_task_gets_its_lease_over_tls(server: LeaseServer) -> None:
    address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)
    with LeaseClient(address, TASK) as task:
        [lease] = task.acquire({("out", 0): 5})
        task.release([lease], 100)
        task.done({("out", 0): 5})


def test_a_task_does_not_tell_its_token_to_a_driver_with_another_certificate(server: LeaseServer) -> None:
    address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)
    other = make_tls().fingerprint
    with pytest.raises(DriverUnreachable, match=f"has the fingerprint {address.fingerprint}, expected {other}"):
        LeaseClient(address._replace(fingerprint=other), TASK, room_timeout_s=0)


def test_a_task_that_does_not_encrypt_is_turned_away(server: LeaseServer) -> None:
    address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)
    with pytest.raises(DriverUnreachable):
        LeaseClient(address._replace(fingerprint=""), TASK, connect_timeout_s=10, room_timeout_s=0)


def test_peers_that_never_finish_their_handshake_neither_block_tasks_nor_stay(
    server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HELLO_TIMEOUT_MS", 200)
    address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)
    with ExitStack() as mute:
        silent = [mute.enter_context(socket.create_connection((address.host, address.port), 10)) for _ in range(20)]
        with LeaseClient(address, TASK) as task:
            assert len(task.acquire({("out", 0): 1})) == 1
        assert [peer.recv(1) for peer in silent] == [b""] * 20, "the driver closes them"


def test_without_the_library_for_certificates_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(BadClientSetting, match=r"hint: pip install 'fencepost\[tls\]'"):
        make_tls()
