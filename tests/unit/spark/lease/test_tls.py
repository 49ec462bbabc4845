"""The lease port with TLS: the driver makes a certificate, and tasks know the driver by its fingerprint."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fencepost.client.failures import BadClientSetting
from fencepost.spark.lease.client import DriverUnreachable, LeaseClient
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import TlsBytes, make_tls

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
        LeaseClient(address._replace(fingerprint=other), TASK)


def test_a_task_that_does_not_encrypt_is_turned_away(server: LeaseServer) -> None:
    address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)
    with pytest.raises(DriverUnreachable):
        LeaseClient(address._replace(fingerprint=""), TASK, connect_timeout_s=10, room_timeout_s=0)


def test_a_peer_that_ends_tls_and_sends_on_takes_no_memory() -> None:
    driver = TlsBytes(make_tls().context)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = context.wrap_bio(incoming, outgoing)
    said = bytearray()
    for step in (peer.do_handshake, peer.do_handshake, lambda: peer.write(b"hello"), peer.unwrap):
        with suppress(ssl.SSLWantReadError):
            step()
        said += driver.decrypt(outgoing.read())
        incoming.write(driver.to_send())
    assert said == b"hello"
    assert [driver.decrypt(b"x" * 1000) for _ in range(3)] == [b""] * 3
    assert driver._incoming.pending == 0


def test_without_the_library_for_certificates_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(BadClientSetting, match=r"hint: pip install 'fencepost\[tls\]'"):
        make_tls()
