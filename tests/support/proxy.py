"""A network that loses things: between clients and one broker, and it knows where a request begins and ends.

    with Proxy(broker.bootstrap_servers) as proxy:
        proxy.lose_reply(EndTxnRequest)              # The broker carries it out, and nobody hears of it.
        KafkaClient({"bootstrap.servers": proxy.bootstrap_servers})

Brokers tell clients where to go next; the proxy puts its own address there. One request at a time on a connection.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from fencepost.protocol.messages import FindCoordinatorResponse, MetadataResponse
from fencepost.protocol.schema import Message

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
TIMEOUT_S = 60.0


class Lost(Exception):
    """The proxy ends the connection here."""


class Held:
    """A request, or its reply, that waits for the test."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._go = threading.Event()
        self._reply: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def wait_until_arrived(self) -> None:
        assert self._arrived.wait(TIMEOUT_S), "no such request came"

    def let_go(self) -> None:
        self._go.set()

    def reply(self) -> bytes:
        """The frame that the broker answered with, once it has."""
        return self._reply.get(timeout=TIMEOUT_S)

    def arrive(self) -> None:
        self._arrived.set()
        self._go.wait(TIMEOUT_S)


class _Trap(NamedTuple):
    api_key: int
    on_request: Callable[[], None]
    on_reply: Callable[[bytes], None]


def _lose(*_: object) -> None:
    raise Lost


def _pass(*_: object) -> None:
    pass


class Proxy:
    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._traps: list[_Trap] = []
        self._sockets: set[socket.socket] = set()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for sock in [self._listener, *self._sockets]:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # Closing alone wakes nobody up.
        self._listener.close()

    # --- what is to be lost, each once ----------------------------------------------------------------------

    def lose_request(self, kind: type[Message]) -> None:
        """The next one never reaches the broker; the connection ends."""
        self._set(kind, on_request=_lose)

    def lose_reply(self, kind: type[Message]) -> None:
        """The broker carries the next one out, and its reply is lost; the connection ends."""
        self._set(kind, on_reply=_lose)

    def hold_request(self, kind: type[Message]) -> Held:
        """The next one gets to the broker when the test says so, whatever has become of its sender."""
        held = Held()
        self._set(kind, on_request=held.arrive, on_reply=held._reply.put)
        return held

    @property
    def unsprung(self) -> int:
        """How many of these have not happened."""
        with self._lock:
            return len(self._traps)

    def _set(
        self, kind: type[Message], on_request: Callable[[], None] = _pass, on_reply: Callable[[bytes], None] = _pass
    ) -> None:
        with self._lock:
            self._traps.append(_Trap(kind.definition.api_key, on_request, on_reply))

    def _spring(self, api_key: int) -> _Trap | None:
        with self._lock:
            trap = next((t for t in self._traps if t.api_key == api_key), None)
            if trap is not None:
                self._traps.remove(trap)
            return trap

    # --- connections ----------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, Lost), socket.create_connection(self._broker, timeout=TIMEOUT_S) as broker:
            # A worker that nobody uses keeps its connection for as long as it lives.
            client.settimeout(None)
            with self._lock:
                self._sockets |= {client, broker}
            for sock in (client, broker):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while True:
                    self._pass_on(client, broker)
            finally:
                with self._lock:
                    self._sockets -= {client, broker}

    def _pass_on(self, client: socket.socket, broker: socket.socket) -> None:
        request = _receive_frame(client)
        api_key, version, _ = _HEADER.unpack_from(request)
        trap = self._spring(api_key)
        if trap is not None:
            trap.on_request()
        broker.sendall(_LENGTH.pack(len(request)) + request)
        reply = _receive_frame(broker)
        if trap is not None:
            trap.on_reply(reply)
        reply = self._with_our_address(api_key, version, reply)
        client.sendall(_LENGTH.pack(len(reply)) + reply)

    def _with_our_address(self, api_key: int, version: int, frame: bytes) -> bytes:
        for kind in (MetadataResponse, FindCoordinatorResponse):
            if kind.definition.api_key == api_key:
                header = 5 if kind.is_flexible(version) else 4
                response: Any = kind.decode(frame, header, version)[0]
                places = response.brokers if kind is MetadataResponse else [response, *response.coordinators]
                for place in places:
                    place.host, place.port = "127.0.0.1", self.port
                out = bytearray(frame[:header])
                response.encode_into(out, version)
                return bytes(out)
        return frame


def _receive_frame(sock: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_receive(sock, 4))
    return _receive(sock, size)


def _receive(sock: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        data = sock.recv(size - len(out))
        if not data:
            raise Lost
        out += data
    return bytes(out)
