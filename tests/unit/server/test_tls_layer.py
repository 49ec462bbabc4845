"""TLS without sockets: a real session over a transport that records."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fencepost.server import tls
from fencepost.server.tls import Certificates, ListenerTls, TlsLayer
from tests.certificates import Authority
from tests.unit.server.test_socket_server import FakeTransport, World, frame, settle


class TlsClient:
    """A client of `world`, which has not connected yet."""

    def __init__(
        self, world: World, authority: Authority, ready: Callable[[object], None] = lambda certificate: None
    ) -> None:
        store = authority.issue("broker", "CN=broker", ("localhost",))
        certificates = Certificates(ListenerTls(str(store.path), "", "", "none", "TLSv1.3"), world.lines.append)
        self.transport = FakeTransport()
        connection = world.socket_server.protocol()
        self.transport.protocol = TlsLayer(connection, world.socket_server, certificates, ready)  # type: ignore[assignment]
        self.transport.protocol.connection_made(self.transport)  # type: ignore[arg-type]
        context = ssl.create_default_context(cafile=str(authority.path))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def exchange(self) -> None:
        """Give the broker what the client has to say, and the client what the broker has said so far."""
        self.transport.receive(self._outgoing.read())
        self._incoming.write(bytes(self.transport.written))
        self.transport.written.clear()

    async def shake_hands(self) -> None:
        for _ in range(3):
            with suppress(ssl.SSLWantReadError):
                self.session.do_handshake()
            self.exchange()
            await settle()

    def say_goodbye(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self.session.unwrap()
        self.exchange()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_an_answer_to_a_client_that_has_said_goodbye_harms_nobody(authority: Authority) -> None:
    """The answer may come from the request of another client, which would fail with it."""

    async def story() -> None:
        world = World()
        client = TlsClient(world, authority)
        await client.shake_hands()
        client.session.write(frame(b"wait"))
        client.exchange()
        assert world.node.handled == [b"wait"]
        client.say_goodbye()
        world.node.answer()
        assert client.transport.end == "closed"

    asyncio.run(story())


def test_a_client_whose_handshake_waits_for_its_turn_cannot_send_more(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_READ_BYTES", 64)

    async def story() -> None:
        client = TlsClient(World(), authority)
        assert client.transport.receive(bytes([22, 3, 1, 64, 0, *bytes(1000)])) == 64
        await settle()
        assert client.transport.is_reading, "its turn is over, and its first message is not complete"

    asyncio.run(story())


def test_a_client_whose_certificate_cannot_be_read_is_never_served(authority: Authority) -> None:
    async def story() -> None:
        world = World()

        def read(certificate: object) -> None:
            raise KeyError("an unknown attribute")

        client = TlsClient(world, authority, read)
        await client.shake_hands()
        client.session.write(frame(b"x"))
        client.exchange()
        assert client.transport.end == "closed"
        assert world.node.handled == []

    asyncio.run(story())
