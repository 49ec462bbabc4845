"""Requests and replies over a plain socket, with our own codec: any version, even an invalid one.

    with RawClient("127.0.0.1", 9092) as client:
        reply = client.call(EndTxnRequest("t1", 1, 0, True), version=5)

`encode_frame` and `decode_reply` do the framing alone, for tests with another transport.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from typing import Any, Self

from fencepost.protocol import messages
from fencepost.protocol.schema import Message

_HEADER = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
API_VERSIONS = 18
CLIENT_ID = "raw"


class Closed(Exception):
    """The broker closed the connection instead of answering."""


def encode_frame(request: Message, version: int, correlation_id: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """A request frame, without the length before it."""
    out = bytearray(_HEADER.pack(request.definition.api_key, version, correlation_id))
    raw = client_id.encode() if client_id is not None else b""
    out += _INT16.pack(len(raw) if client_id is not None else -1) + raw
    if request.is_flexible(version):
        out += b"\0"
    request.encode_into(out, version)
    return bytes(out)


def response_class(request: Message) -> type[Message]:
    found: type[Message] = getattr(messages, type(request).__name__.removesuffix("Request") + "Response")
    return found


def decode_reply(request: Message, version: int, frame: bytes) -> Any:
    """The response in a reply frame (without the length before it). All of the frame must be used up."""
    kind = response_class(request)
    pos = 4
    if request.is_flexible(version) and request.definition.api_key != API_VERSIONS:
        assert frame[pos] == 0, "tagged fields in a response header"
        pos += 1
    response, end = kind.decode(frame, pos, version)
    assert end == len(frame), f"{kind.__name__} v{version}: {len(frame) - end} bytes are left over"
    return response


class RawClient:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int, timeout_s: float = 30, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, version: int, client_id: str | None = CLIENT_ID) -> Any:
        self._correlation_id += 1
        frame = self.send_frame(encode_frame(request, version, self._correlation_id, client_id))
        assert _INT32.unpack_from(frame)[0] == self._correlation_id, "the reply is to another request"
        return decode_reply(request, version, frame)

    def send_frame(self, frame: bytes) -> bytes:
        """Send any bytes as one frame and return the frame that comes back. Raises Closed."""
        try:
            self._socket.sendall(_INT32.pack(len(frame)) + frame)
            return self._read(_INT32.unpack(self._read(4))[0])
        except (ConnectionResetError, BrokenPipeError):
            raise Closed from None

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            chunk = self._socket.recv(size - len(parts))
            if not chunk:
                raise Closed
            parts += chunk
        return bytes(parts)


class SocketTarget(RawClient):
    """A running broker as the target of transcripts and placements. It has a real clock."""

    is_independent = True
    is_apache = False

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def advance(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def restart(self) -> None:
        raise NotImplementedError

    def write_state(self, txn: object) -> None:
        raise NotImplementedError
