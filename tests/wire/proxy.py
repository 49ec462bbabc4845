"""A proxy between clients and one broker that can lose, hold or change single requests and replies.

    with Proxy(broker.bootstrap_servers) as proxy:
        proxy.lose_reply(EndTxnRequest)              # The broker executes it, but the client gets no reply.
        KafkaClient({"bootstrap.servers": proxy.bootstrap_servers})

The proxy replaces the broker's address in Metadata and FindCoordinator with its own. It passes on one request at a time
on a connection.
"""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

from fencepost.protocol import messages
from fencepost.protocol.messages import FindCoordinatorResponse, MetadataResponse
from fencepost.protocol.schema import Message

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
TIMEOUT_S = 60.0
# How long a request waits for others on its connection, where the proxy wants several.
COMPANY_S = 0.5


class Lost(Exception):
    """The proxy ends the connection here."""


class Held:
    """A request or reply that the proxy holds until the test releases it."""

    def __init__(self) -> None:
        self.sender_port = 0  # Of the client's end of the connection.
        self._arrived = threading.Event()
        self._go = threading.Event()
        self._reply: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def wait_until_arrived(self) -> None:
        assert self._arrived.wait(TIMEOUT_S), "no such request came"

    def let_go(self) -> None:
        self._go.set()

    def reply(self) -> bytes:
        """The broker's reply; waits for it."""
        return self._reply.get(timeout=TIMEOUT_S)

    def arrive(self, sender_port: int) -> None:
        self.sender_port = sender_port
        self._arrived.set()
        self._go.wait(TIMEOUT_S)


class _Trap(NamedTuple):
    """How to treat a request (frame, version, port of the sender) and its reply (frame, version).

    If `on_request` returns a frame, that is the reply, and the broker does not get the request.
    """

    api_key: int
    on_request: Callable[[bytes, int, int], bytes | None]
    on_reply: Callable[[bytes, int], bytes]


class _Cut(NamedTuple):
    api_key: int
    executed: int
    answered: int


def _lose(*_: object) -> Any:
    raise Lost


def _pass_request(_request: bytes, _version: int, _sender_port: int) -> None:
    return None


def _pass_reply(reply: bytes, _version: int) -> bytes:
    return reply


class Proxy:
    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._traps: list[_Trap] = []
        self._cuts: list[_Cut] = []
        self._sockets: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for sock in [self._listener, *self._sockets]:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # Closing alone would not end a blocked accept or recv.
        self._listener.close()

    # --- faults, each for one request -----------------------------------------------------------------------

    def lose_request(self, kind: type[Message]) -> None:
        """The next request of this kind never reaches the broker; the connection ends."""
        self._set(kind, on_request=_lose)

    def lose_reply(self, kind: type[Message]) -> None:
        """The broker executes the next request of this kind, and its reply is lost; the connection ends."""
        self._set(kind, on_reply=_lose)

    def hold_request(self, kind: type[Message]) -> Held:
        """The next request of this kind reaches the broker when the test releases it, even if its sender is gone."""
        held = Held()

        def on_request(_request: bytes, _version: int, sender_port: int) -> None:
            held.arrive(sender_port)

        def on_reply(reply: bytes, _version: int) -> bytes:
            held._reply.put(reply)
            return reply

        self._set(kind, on_request, on_reply)
        return held

    def cut(self, kind: type[Message], *, executed: int, answered: int) -> None:
        """The connection ends when more requests of this kind than `executed` are on their way on it.

        The broker gets the first `executed` of them, and the client the replies to the first `answered`.
        """
        with self._lock:
            self._cuts.append(_Cut(kind.definition.api_key, executed, answered))

    def change_reply(self, kind: type[Message], change: Callable[[Any], None]) -> None:
        """The broker executes the next request of this kind, and the client gets a changed reply."""
        reply_kind = getattr(messages, kind.definition.name.removesuffix("Request") + "Response")
        self._set(kind, on_reply=lambda reply, version: _changed(reply_kind, reply, version, change))

    def answer(self, kind: type[Message], reply: Message) -> None:
        """The next one never reaches the broker, and the client is answered all the same."""

        def on_request(request: bytes, version: int, _sender_port: int) -> bytes:
            return _encoded(request, version, reply)

        self._set(kind, on_request)

    def answer_before(self, kind: type[Message], reply: Message, later: type[Message]) -> None:
        """The next one is answered at once, and reaches the broker only after it has answered a request of `later`.

        With EndTxn and ListOffsets: the client finds a committed transaction without its marker, as on Apache Kafka.
        """

        def on_request(request: bytes, version: int, _sender_port: int) -> bytes:
            def deliver(later_reply: bytes, _version: int) -> bytes:
                with socket.create_connection(self._broker, timeout=TIMEOUT_S) as broker:
                    broker.sendall(_LENGTH.pack(len(request)) + request)
                    _receive_frame(broker)
                return later_reply

            self._set(later, on_reply=deliver)
            return _encoded(request, version, reply)

        self._set(kind, on_request)

    @property
    def unsprung(self) -> int:
        """How many of these faults have not happened yet."""
        with self._lock:
            return len(self._traps) + len(self._cuts)

    def _set(
        self,
        kind: type[Message],
        on_request: Callable[[bytes, int, int], bytes | None] = _pass_request,
        on_reply: Callable[[bytes, int], bytes] = _pass_reply,
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
            # An idle worker keeps its connection for as long as it lives.
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
        if cut := self._next_cut(api_key):
            return self._pass_several(cut, request, client, broker)
        trap = self._spring(api_key) or _Trap(api_key, _pass_request, _pass_reply)
        reply = trap.on_request(request, version, client.getpeername()[1])
        if reply is None:
            broker.sendall(_LENGTH.pack(len(request)) + request)
            reply = trap.on_reply(_receive_frame(broker), version)
            for kind in (MetadataResponse, FindCoordinatorResponse):
                if kind.definition.api_key == api_key:
                    reply = _changed(kind, reply, version, self._put_our_address)
        client.sendall(_LENGTH.pack(len(reply)) + reply)
        return None

    def _next_cut(self, api_key: int) -> _Cut | None:
        with self._lock:
            return next((cut for cut in self._cuts if cut.api_key == api_key), None)

    def _pass_several(self, cut: _Cut, first: bytes, client: socket.socket, broker: socket.socket) -> None:
        """All that the client sends before it waits for a reply. The connection is cut if they are enough."""
        requests = [first]
        while len(requests) <= cut.executed and select.select([client], [], [], COMPANY_S)[0]:
            requests.append(_receive_frame(client))
        is_cut = len(requests) > cut.executed and self._take(cut)
        for number, request in enumerate(requests[: cut.executed] if is_cut else requests):
            broker.sendall(_LENGTH.pack(len(request)) + request)
            reply = _receive_frame(broker)
            if number < cut.answered or not is_cut:
                client.sendall(_LENGTH.pack(len(reply)) + reply)
        if is_cut:
            raise Lost

    def _take(self, cut: _Cut) -> bool:
        """False if another connection was cut meanwhile: a cut is for one connection."""
        with self._lock:
            is_there = cut in self._cuts
            if is_there:
                self._cuts.remove(cut)
            return is_there

    def _put_our_address(self, response: Any) -> None:
        is_metadata = isinstance(response, MetadataResponse)
        for place in response.brokers if is_metadata else [response, *response.coordinators]:
            place.host, place.port = "127.0.0.1", self.port


class PortMapping(Proxy):
    """Passes on everything as it is, as the port mapping of a container does. It may be there before its broker."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:0")

    def lead_to(self, port: int) -> None:
        self._broker = ("127.0.0.1", port)

    def _put_our_address(self, response: Any) -> None:
        """The addresses stay as the broker gave them."""


def _encoded(request: bytes, version: int, reply: Message) -> bytes:
    out = bytearray(request[4:8] + (b"\0" if reply.is_flexible(version) else b""))
    reply.encode_into(out, version)
    return bytes(out)


def _changed(kind: type[Message], frame: bytes, version: int, change: Callable[[Any], None]) -> bytes:
    header = 5 if kind.is_flexible(version) else 4
    response = kind.decode(frame, header, version)[0]
    change(response)
    out = bytearray(frame[:header])
    response.encode_into(out, version)
    return bytes(out)


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
