"""Connections between the nodes of one process: a node asks another as a client would, over a socket.

The sockets are pairs that only this process has, so no client can pass for a node. Everything else is as with a client:
frames, order, a socket server at the other end, and connections that end.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

from fencepost.broker.acls import NODE
from fencepost.broker.peers import Answered
from fencepost.protocol import messages
from fencepost.protocol.schema import Message
from fencepost.server.connection import ClientConnection
from fencepost.server.socket_server import SocketServer

REQUEST_TIMEOUT_S = 30.0
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")


class PeerConnection(asyncio.Protocol):
    """The asking end of one connection. Requests that are sent before it is open wait."""

    def __init__(self, client_id: str, closed: Callable[[PeerConnection], None], answered: AnsweredOne) -> None:
        self._client_id = client_id.encode()
        self._closed = closed
        self._answered = answered
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._received = bytearray()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[Message, int, Answered, asyncio.TimerHandle]] = {}
        self.is_over = False

    def send(self, request: Message, version: int, then: Answered) -> None:
        number = next(self._numbers)
        body = bytearray(self._client_id)
        if request.is_flexible(version):
            body += b"\0"
        request.encode_into(body, version)
        api_key = request.definition.api_key
        assert api_key is not None
        frame = _HEADER.pack(10 + len(body), api_key, version, number, len(self._client_id)) + body
        timeout = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, self.end)
        self._waiting[number] = (request, version, then, timeout)
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def end(self) -> None:
        """Close, and answer what waits with None."""
        if self.is_over:
            return
        self.is_over = True
        self._closed(self)
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        for _, _, then, timeout in waiting.values():
            timeout.cancel()
            self._answered(then, None)

    # --- called by asyncio --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_over:
            self._transport.abort()
            return
        self._transport.writelines(self._unsent)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4 and len(received) - 4 >= (size := _LENGTH.unpack_from(received)[0]):
            frame = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            request, version, then, timeout = self._waiting.pop(_LENGTH.unpack_from(frame)[0])
            timeout.cancel()
            self._answered(then, _decode(request, version, frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()


AnsweredOne = Callable[[Answered, Any], None]


def _decode(request: Message, version: int, frame: bytes) -> Any:
    response_class = getattr(messages, type(request).__name__.removesuffix("Request") + "Response")
    response, _ = response_class.decode(frame, 5 if request.is_flexible(version) else 4, version)
    return response


def _hand_over(end: socket.socket, transport: asyncio.BaseTransport) -> None:
    """A transport that was closed when it had hardly begun has closed the descriptor of the socket.

    uvloop does not tell the socket so, which would close the descriptor again, and by then it may be that of a log.
    """
    if transport.is_closing():
        end.detach()


class NodePeers:
    """The connections of one node to the others; see `broker.peers.Peers`. Opened when they are first needed.

    `socket_servers`: those of the nodes that are up, by node id. `answered` calls what waited for an answer.
    """

    def __init__(self, node_id: int, socket_servers: dict[int, SocketServer], answered: AnsweredOne) -> None:
        self._client_id = f"node-{node_id}"
        self._socket_servers = socket_servers
        self._answered = answered
        self._connections: dict[int, PeerConnection] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._is_unplugged = False

    def send(self, node_id: int, request: Message, version: int, then: Answered) -> None:
        socket_server = self._socket_servers.get(node_id)
        if socket_server is None or self._is_unplugged:
            asyncio.get_running_loop().call_soon(self._answered, then, None)
            return
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connect(node_id, socket_server)
        connection.send(request, version, then)

    def _connect(self, node_id: int, socket_server: SocketServer) -> PeerConnection:
        def closed(ended: PeerConnection) -> None:
            if self._connections.get(node_id) is ended:
                del self._connections[node_id]

        connection = self._connections[node_id] = PeerConnection(self._client_id, closed, self._answered)
        loop = asyncio.get_running_loop()

        def other_end() -> ClientConnection:
            accepted = socket_server.protocol()
            accepted.principal = NODE
            return accepted

        async def open_both_ends() -> None:
            try:
                ours, theirs = socket.socketpair()
                for end in (ours, theirs):
                    end.setblocking(False)
                _hand_over(theirs, (await loop.connect_accepted_socket(other_end, theirs))[0])
                _hand_over(ours, (await loop.create_connection(lambda: connection, sock=ours))[0])
            except OSError:
                connection.end()

        task = loop.create_task(open_both_ends())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return connection

    def disconnect(self, node_id: int | None = None) -> None:
        """Close the connections to a node, or to all. What waits for an answer gets none."""
        for other, connection in list(self._connections.items()):
            if node_id in (None, other):
                connection.end()

    def unplug(self) -> None:
        """For tests: no connection, until `plug`."""
        self._is_unplugged = True
        self.disconnect()

    def plug(self) -> None:
        self._is_unplugged = False
