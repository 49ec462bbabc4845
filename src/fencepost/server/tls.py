"""TLS: the certificates of a listener, and the layer between a socket and a `ClientConnection`.

A connection counts as one of its broker from its first byte, so `max.connections` and the rules for silent clients hold
for it. A handshake begins when the client has sent something, and few are under way at one time: a client that opens
connections and leaves them half-open costs a socket each, and no more. Handshakes share the thread with all requests,
so a turn of them is short (`Handshakes`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fencepost.broker.config import BadSetting
from fencepost.server.flow_control import CLOSED

if TYPE_CHECKING:
    from fencepost.server.connection import ClientConnection
    from fencepost.server.socket_server import SocketServer

# How much of a client's bytes is decrypted at a time. As much may be left undecrypted while the connection is paused.
READ_BYTES = 1 << 15
HANDSHAKE_READ_BYTES = 1 << 12
# How much of an answer is encrypted at a time.
WRITE_BYTES = 1 << 16
# The most handshakes under way. Beyond it the oldest is given up: a client that goes on needs a fraction of a second.
MAX_HANDSHAKES = 1000
# A turn of handshakes ends after this time, and the requests of others are served.
TURN_S = 0.002
# The files of the certificates are looked at this often at most.
LOOK_S = 1.0
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


_NO_BYTES = ssl.MemoryBIO()


class ListenerTls(NamedTuple):
    """The settings of one listener, with Kafka's names."""

    keystore: str
    key_password: str
    truststore: str
    client_auth: str
    protocols: str


class Certificates:
    """The certificates of one listener. `context` reads them again when a file has changed.

    If the new files cannot be used, the old certificates stay, and `report` gets a line.
    """

    def __init__(self, settings: ListenerTls, report: Callable[[str], None]) -> None:
        """Raises BadSetting if the files cannot be used."""
        self._settings = settings
        self._report = report
        self._seen = self._look()
        self._context = make_context(settings)
        self._next_look = monotonic() + LOOK_S

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._reload()
        return self._context

    def _look(self) -> list[tuple[int, int, int] | None]:
        """A value that changes whenever one of the files does."""
        return [_fingerprint(path) for path in (self._settings.keystore, self._settings.truststore) if path]

    def _reload(self) -> None:
        try:
            self._context = make_context(self._settings)
        except BadSetting as e:
            self._report(f"the certificates have changed, and the old ones stay in use: {e}".replace("\n\n", "; "))
        else:
            self._report(f"the certificates have changed: new connections use {self._settings.keystore}")


def _fingerprint(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def make_context(settings: ListenerTls) -> ssl.SSLContext:
    """Raises BadSetting if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = sorted(VERSIONS[name] for name in settings.protocols.split(","))
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    if not settings.keystore:
        raise BadSetting(
            "a listener with TLS needs ssl.keystore.location, which is empty\n\n"
            "hint: name a PEM file with the broker's private key and its certificates"
        )
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(settings.keystore, password=settings.key_password or "")
    except (OSError, ValueError) as e:
        raise BadSetting(
            f"ssl.keystore.location={settings.keystore} cannot be used: {_reason(e)}\n\n"
            "hint: the PEM file has the private key and then the broker's certificate, followed by those of its "
            "authorities; ssl.key.password decrypts the key"
        ) from None
    if settings.client_auth != "none":
        if not settings.truststore:
            raise BadSetting(
                f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location, which is empty\n\n"
                "hint: name a PEM file with the certificates of the authorities that sign clients' certificates"
            )
        try:
            context.load_verify_locations(cafile=settings.truststore)
        except (OSError, ValueError) as e:
            raise BadSetting(
                f"ssl.truststore.location={settings.truststore} cannot be used: {_reason(e)}\n\n"
                "hint: the PEM file has the certificates of the authorities that sign clients' certificates"
            ) from None
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)


class Handshakes:
    """The TLS handshakes of one broker: how many there are, and whose turn it is."""

    def __init__(self) -> None:
        self._begun: dict[TlsLayer, None] = {}  # Oldest first.
        self._waiting: deque[TlsLayer] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, layer: TlsLayer) -> None:
        self._begun[layer] = None
        if len(self._begun) > MAX_HANDSHAKES:
            oldest = next(iter(self._begun))
            oldest.give_up(f"its TLS handshake is not complete, and {MAX_HANDSHAKES} others have begun since")

    def end(self, layer: TlsLayer) -> None:
        self._begun.pop(layer, None)

    def queue(self, layer: TlsLayer) -> None:
        """Have the next step of this handshake soon."""
        self._waiting.append(layer)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        end = monotonic() + TURN_S
        try:
            while self._waiting and monotonic() < end:
                self._waiting.popleft().shake_hands()
        finally:
            self._schedule()


class TlsLayer(asyncio.BufferedProtocol):
    """For the socket a protocol, for the `ClientConnection` a transport."""

    __slots__ = (
        "_certificates",
        "_client",
        "_ended",
        "_incoming",
        "_is_closing",
        "_is_paused",
        "_is_queued",
        "_is_ready",
        "_outgoing",
        "_server",
        "_tls",
        "_transport",
    )

    _transport: asyncio.Transport

    def __init__(
        self, client: ClientConnection, server: SocketServer, certificates: Certificates, ready: Callable[[Any], None]
    ) -> None:
        """`ready` gets the client's certificate (DER), or None if there is none, at the end of the handshake."""
        self._client = client
        self._server = server
        self._certificates = certificates
        self._ended = ready
        self._tls: ssl.SSLObject | None = None
        self._incoming = self._outgoing = _NO_BYTES
        self._is_ready = False
        self._is_closing = False
        self._is_paused = False
        self._is_queued = False

    # --- called by asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.handshakes.end(self)
        self._client.connection_lost(exc)
        self._tls = None  # It takes much memory, and the layer and its connection keep each other alive for a while.
        self._incoming = self._outgoing = _NO_BYTES

    def get_buffer(self, sizehint: int) -> memoryview:
        # The bytes are copied before anything else uses this memory.
        return self._server.view[: READ_BYTES if self._is_ready else HANDSHAKE_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._client.state is CLOSED:
            return
        if self._tls is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = self._certificates.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._server.handshakes.begin(self)
        self._incoming.write(self._server.view[:nbytes])
        if self._is_ready:
            self._decrypt()
        elif not self._is_queued:
            self._is_queued = True
            self._transport.pause_reading()  # Until its turn: what it sends meanwhile would take memory.
            self._server.handshakes.queue(self)

    def eof_received(self) -> bool:
        return bool(self._is_ready and self._client.eof_received())

    def pause_writing(self) -> None:
        self._client.pause_writing()

    def resume_writing(self) -> None:
        self._client.resume_writing()

    # --- the handshake --------------------------------------------------------------------------------------

    def shake_hands(self) -> None:
        """Take the next step of the handshake."""
        self._is_queued = False
        if self._client.state is CLOSED or self._transport.is_closing():
            return
        self._transport.resume_reading()
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except ssl.SSLError as e:
            self._send()  # The alert.
            self._client.close(f"TLS handshake failed: {_reason(e)}")
            return
        self._send()
        self._server.handshakes.end(self)
        self._is_ready = True
        try:
            self._ended(self._tls.getpeercert(binary_form=True))
        except Exception as e:  # Whatever it is: a client that cannot be named must not be served.
            self._client.close(f"its certificate cannot be read: {e}")
            return
        self._decrypt()

    def give_up(self, reason: str) -> None:
        self._server.handshakes.end(self)
        self._client.abort(reason)

    # --- bytes ----------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Hand the client's bytes on, until there are no more, or until the connection stops reading."""
        client, tls = self._client, self._tls
        if tls is None:
            return  # The connection has ended.
        try:
            while not self._is_paused and client.state is not CLOSED:
                room = client.get_buffer(-1)
                # With a buffer, `read` returns the number of bytes in it.
                count = cast(int, tls.read(len(room), cast(bytearray, room)))
                if not count:
                    self._on_last_byte()
                    return
                client.buffer_updated(count)
        except ssl.SSLWantReadError:
            self._send()  # An answer of TLS itself, as to a change of keys.
        except ssl.SSLZeroReturnError:
            self._on_last_byte()
        except ssl.SSLError as e:
            self._send()
            client.close(f"TLS failed: {_reason(e)}")

    def _on_last_byte(self) -> None:
        if not self._client.eof_received():
            self.close()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # --- called by the connection: it is a transport ----------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._is_closing:
            return  # As a socket's transport does: the client has said goodbye, and its answer came too late.
        tls = self._tls
        assert tls is not None, "an answer without a TLS session"
        view = memoryview(data)
        while view:
            view = view[tls.write(view[:WRITE_BYTES]) :]
            self._send()

    def writelines(self, parts: list[bytes]) -> None:
        for part in parts:
            self.write(part)

    def close(self) -> None:
        self._is_closing = True
        if self._is_ready and self._tls is not None:
            with suppress(ssl.SSLError):  # The broker does not wait for the client to say goodbye.
                self._tls.unwrap()
            self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
            # Not at once: the caller is in the middle of a turn.
            asyncio.get_running_loop().call_soon(self._decrypt)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
