"""One blocking connection to one broker: connect, TLS, SASL, then requests, one after the other."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from fencepost.client import sasl
from fencepost.client.failures import AuthenticationFailed, Refused, Unreachable
from fencepost.client.oauthbearer import Token, TokenSource
from fencepost.client.session import Session
from fencepost.client.settings import ClientSettings
from fencepost.client.tls import tls_context
from fencepost.protocol import errors
from fencepost.protocol.messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.schema import Malformed, Message

_LENGTH = struct.Struct(">i")
MAX_REPLY_BYTES = 1 << 30
LEAST_TIMEOUT_S = 0.1


class Disconnected(Unreachable):
    """The connection ended, or the reply did not arrive in time. The broker may have served the request."""


class BrokerConnection:
    """Connects when it is created. Threads may share it; their requests are sent one after the other.

    tokens: for OAUTHBEARER. A broker may end a login after a while (KIP-368); the first request after most of that time
    logs in again.
    """

    def __init__(self, host: str, port: int, settings: ClientSettings, tokens: TokenSource | None = None) -> None:
        self.host = host
        self.port = port
        self.session = Session(settings.client_id)
        self._settings = settings
        self._tokens = tokens
        self._renewed_at: float | None = None
        self._lock = threading.Lock()
        self._answers = 0
        # One deadline for the connection, TLS and the first answer together.
        deadline = time.monotonic() + settings.connect_timeout_s
        self._socket = self._connect(deadline)
        try:
            self._greet(deadline)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def request(self, request: Message, at_most: int | None = None, timeout_s: float | None = None) -> Any:
        """Send and wait. Raises Disconnected, after which the connection is closed."""
        with self._lock:
            if self._renewed_at is not None and time.monotonic() >= self._renewed_at:
                self._log_in()
            return self._ask(request, at_most, timeout_s)

    def _ask(self, request: Message, at_most: int | None = None, timeout_s: float | None = None) -> Any:
        version = self.session.version_for(type(request), at_most)
        frame, sent = self.session.encode(request, version)
        reply = self._exchange(frame, timeout_s or self._settings.request_timeout_s, type(request).__name__)
        try:
            return self.session.decode(reply, sent)
        except Malformed as e:
            self.close()
            raise Disconnected(
                f"{self.address} answered {type(request).__name__} with something else: {e}{self._stranger_hint}"
            ) from None

    def close(self) -> None:
        self._socket.close()

    def _connect(self, deadline: float) -> socket.socket:
        settings = self._settings
        tls = tls_context(settings.tls) if settings.uses_tls else None
        try:
            plain = socket.create_connection((self.host, self.port), timeout=settings.connect_timeout_s)
        except ConnectionRefusedError as e:
            raise Refused(f"cannot connect to {self.address}: {e.strerror or e}") from None
        except OSError as e:
            raise Unreachable(f"cannot connect to {self.address}: {e.strerror or e}") from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is None:
            return plain
        plain.settimeout(_left_s(deadline))
        try:
            return tls.wrap_socket(plain, server_hostname=self.host)
        except ssl.SSLCertVerificationError as e:
            # A retry would give the same result.
            plain.close()
            raise AuthenticationFailed(
                f"the certificate of {self.address} is not to be trusted: {e.verify_message}\n\n"
                "hint: ssl.ca.location names the authority that signed it; "
                "ssl.endpoint.identification.algorithm=none accepts any host name"
            ) from None
        except (ssl.SSLError, OSError) as e:
            plain.close()
            raise Unreachable(f"TLS with {self.address} failed: {e.strerror or e}{self._protocol_hint}") from None

    @property
    def _protocol_hint(self) -> str:
        """For a connection that ends after ApiVersions at the latest, which a listener of any protocol may answer."""
        if self._answers > 1:
            return ""
        return f"\n\nhint: does this port want another security.protocol than {self._settings.protocol}?"

    @property
    def _stranger_hint(self) -> str:
        if self._answers > 1:
            return ""
        return "\n\nhint: is this the port of a Kafka broker, and is security.protocol right?"

    def _greet(self, deadline: float) -> None:
        def ask(at_most: int | None = None) -> Any:
            return self.request(ApiVersionsRequest("fencepost", "1"), at_most, _left_s(deadline))

        response = ask()
        if response.error_code == errors.UNSUPPORTED_VERSION:
            response = ask(at_most=0)  # Kafka before 2.4, which does not know v3.
        if response.error_code:
            raise Unreachable(
                f"{self.address} refused ApiVersions: {errors.name_of(response.error_code)}\n\n"
                "hint: is this a broker of Apache Kafka 0.10 or later?"
            )
        self.session.learn(response)
        if self._settings.sasl_mechanism:
            self._log_in()

    def _exchange(self, frame: bytes, timeout_s: float, what: str) -> bytes:
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            head = self._receive(4)
            if (stranger := stranger_of(head)) is not None:
                raise Disconnected(f"{self.address} {stranger}")
            (size,) = _LENGTH.unpack(head)
            if not 0 <= size <= MAX_REPLY_BYTES:
                raise Disconnected(f"{self.address} sent a reply of {size} bytes to {what}{self._stranger_hint}")
            reply = self._receive(size)
            self._answers += 1
            return reply
        except TimeoutError:
            self.close()
            # A broker that has answered before has the right protocol and is only slow.
            hint = self._protocol_hint if self._answers == 0 else ""
            raise Disconnected(f"{self.address} did not answer {what} within {timeout_s:.1f} s{hint}") from None
        except OSError as e:
            self.close()
            raise Disconnected(
                f"the connection to {self.address} ended during {what}: {e.strerror or e}{self._protocol_hint}"
            ) from None
        except BaseException:
            self.close()  # A part of the reply may be left in the socket.
            raise

    def _receive(self, size: int) -> bytes:
        out = bytearray(size)
        view, got = memoryview(out), 0
        while got < size:
            n = self._socket.recv_into(view[got:])
            if n == 0:
                raise ConnectionResetError(None, "closed by the broker")
            got += n
        return bytes(out)

    # --- SASL ---------------------------------------------------------------------------------------------

    def _log_in(self) -> None:
        """Raises NoToken, after which the connection is as it was, or AuthenticationFailed."""
        mechanism = self._settings.sasl_mechanism
        assert mechanism is not None
        token = self._tokens.token() if self._tokens is not None else None
        began = time.monotonic()
        try:
            hello = self._ask(SaslHandshakeRequest(mechanism))
            if hello.error_code:
                offered = "only " + ", ".join(hello.mechanisms) if hello.mechanisms else "and offers no other"
                raise AuthenticationFailed(
                    f"{self.address} does not accept sasl.mechanism={mechanism}, {offered}\n\n"
                    "hint: check sasl.mechanism and security.protocol"
                )
            renewed_after_s = sasl.renewed_after_s(self._converse(self._conversation(mechanism, token)))
        except sasl.Untrusted as e:
            self.close()
            raise AuthenticationFailed(f"{self.address} {e}") from None
        except AuthenticationFailed:
            self.close()
            if self._tokens is not None and token is not None:
                self._tokens.forget(token)
            raise
        self._renewed_at = None if renewed_after_s is None else began + renewed_after_s

    def _conversation(self, mechanism: str, token: Token | None) -> sasl.Conversation:
        settings = self._settings
        if token is not None:
            return sasl.oauthbearer(token.value, token.extensions)
        if mechanism == "PLAIN":
            return sasl.plain(settings.username, settings.password)
        nonce = base64.b64encode(os.urandom(24)).decode()
        return sasl.scram(mechanism, settings.username, settings.password, nonce)

    def _converse(self, conversation: sasl.Conversation) -> int:
        """Returns how many milliseconds the login is valid; 0: for ever."""
        lifetime_ms = 0
        with suppress(StopIteration):
            message = next(conversation)
            while True:
                answer = self._ask(SaslAuthenticateRequest(message))
                if answer.error_code:
                    raise AuthenticationFailed(self._refusal(answer.error_message))
                lifetime_ms = answer.session_lifetime_ms
                message = conversation.send(bytes(answer.auth_bytes))
        return lifetime_ms

    def _refusal(self, reason: str | None) -> str:
        if self._settings.sasl_mechanism == sasl.OAUTHBEARER:
            return (
                f"{self.address} refused the token: {reason}\n\n"
                "hint: is the token for this cluster (issuer, audience, scope), and are the clocks right?"
            )
        return (
            f"{self.address} refused user {self._settings.username!r}: {reason}\n\n"
            "hint: check sasl.username and sasl.password"
        )


def stranger_of(head: bytes) -> str | None:
    """What an answer that begins with these four bytes comes from; None: it may be a Kafka broker."""
    if head == b"HTTP":
        return "answered with HTTP\n\nhint: this is the port of a web server, not a listener of a Kafka broker"
    if head[:2] == b"\x15\x03":  # An alert of any version of TLS, which would be a reply of 337 MB.
        return "answered with TLS\n\nhint: this port wants security.protocol=SSL or SASL_SSL"
    return None


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), LEAST_TIMEOUT_S)
