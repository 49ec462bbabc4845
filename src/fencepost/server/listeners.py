"""The listeners of a running process: sockets, TLS and login of each.

Every broker has one socket per listener, and one `SocketServer`, which divides its memory among the connections of
all of them.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from fencepost.broker.config import BadSetting, Config
from fencepost.broker.controller import BrokerAddress, Controller
from fencepost.broker.listeners import Endpoint
from fencepost.broker.logins import OAUTHBEARER, Logins, enabled_mechanisms
from fencepost.broker.metadata import Metadata
from fencepost.broker.node import ANONYMOUS, Frame
from fencepost.machines.auth.login import Login
from fencepost.protocol.scram import SCRAM_MECHANISMS as SCRAM
from fencepost.protocol.transaction_version import TransactionVersion
from fencepost.server.addresses import advertised, bind, client_auth, exposure, listening
from fencepost.server.connection import ClientConnection
from fencepost.server.socket_server import SocketServer
from fencepost.server.tls import Certificates, ListenerTls, TlsLayer

if TYPE_CHECKING:
    from fencepost.server.connection import ClientConnection
    from fencepost.server.key_sets import KeySet
    from fencepost.server.socket_server import SocketServer


def require(package: str, setting: str) -> None:
    """Raises BadSetting if the package is missing that the setting needs."""
    try:
        import_module(package)
    except ModuleNotFoundError:
        raise BadSetting(
            f"{setting} needs the Python package {package}, which is not installed\n\n"
            "hint: pip install 'fencepost[security]'"
        ) from None


# The largest request of a client that has not logged in.
MAX_LOGIN_BYTES = 1 << 19


class Guard:
    """Lets only those requests through that the login allows: `machines/auth/login.py` has the rules."""

    __slots__ = ("_login", "_now_ms", "_server")

    def __init__(self, server: SocketServer, login: Login, now_ms: Callable[[], int]) -> None:
        self._server = server
        self._login = login
        self._now_ms = now_ms

    @property
    def max_request_bytes(self) -> int:
        limit = self._server.max_request_bytes
        return limit if self._login.user is not None else min(limit, MAX_LOGIN_BYTES)

    def handle(self, frame: Frame, connection: ClientConnection, now_ms: int) -> None:
        """Pass the request on, or close the connection."""
        objection = self._login.objection(int.from_bytes(frame[:2], "big", signed=True), self._now_ms())
        if objection:
            connection.close(objection)
        else:
            self._server.handle(frame, connection, now_ms)


class Listener:
    """One listener: `sockets` and `listens_on` have an entry for each broker."""

    def __init__(self, endpoint: Endpoint, config: Config, brokers: int, warn: Callable[[str], None]) -> None:
        """Raises CannotListen or BadSetting."""
        self.endpoint = endpoint
        self._config = config
        self._certificates = self._read_certificates(warn) if endpoint.uses_tls else None
        self._principal_of = _certificate_reader() if self._asks_for_certificates else None
        self._logins = self._offer_logins(warn) if endpoint.uses_sasl else None
        self.metadata: Callable[[], Metadata] = lambda: Metadata("", TransactionVersion.TV2)
        self.sockets = bind(endpoint.host, endpoint.port, brokers)
        try:
            self.listens_on = listening(self.sockets, endpoint.host, config["broker.id"])
            self.given_to_clients = advertised(self.listens_on, endpoint.advertised)
            self.warning = exposure(config, endpoint, self.sockets)
        except Exception:
            self.close()
            raise

    @property
    def _asks_for_certificates(self) -> bool:
        return self.endpoint.uses_tls and client_auth(self._config, self.endpoint) != "none"

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()

    def bind_again(self, node_id: int) -> socket.socket:
        """The socket of a node that was stopped. Raises CannotListen."""
        port = next(address.port for address in self.listens_on if address.node_id == node_id)
        return bind(self.endpoint.host, port)[0]

    def without_users(self) -> str | None:
        """The warning about a listener where no client can log in, because there are no users; None if one can."""
        name = self.endpoint.name
        is_for_users = self.endpoint.uses_sasl and set(enabled_mechanisms(self._config, name)) <= SCRAM.keys()
        if self.metadata().users or not is_for_users:
            return None
        return f"no client can log in at the listener {name}: there are no users; `fencepost user add` adds one"

    def _read_certificates(self, warn: Callable[[str], None]) -> Certificates:
        own = partial(self._config.for_listener, self.endpoint.name)
        settings = ListenerTls(
            own("ssl.keystore.location"),
            own("ssl.key.password"),
            own("ssl.truststore.location"),
            client_auth(self._config, self.endpoint),
            own("ssl.enabled.protocols"),
        )
        return Certificates(settings, warn)

    def _offer_logins(self, warn: Callable[[str], None]) -> Logins:
        name = self.endpoint.name
        keys = self._open_key_set(warn) if OAUTHBEARER in enabled_mechanisms(self._config, name) else None
        find_key = None if keys is None else keys.find
        return Logins(self._config, name, lambda: self.metadata(), secrets.token_urlsafe, find_key)

    def _open_key_set(self, warn: Callable[[str], None]) -> KeySet:
        for package in ("jwt", "cryptography"):
            require(package, "sasl.enabled.mechanisms=OAUTHBEARER")
        from fencepost.server.key_sets import open_key_set

        own = partial(self._config.for_listener, self.endpoint.name, mechanism=OAUTHBEARER)
        backoff_ms = (
            own("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            own("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
        return open_key_set(
            own("sasl.oauthbearer.jwks.endpoint.url"),
            own("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
            (backoff_ms[0] / 1000, backoff_ms[1] / 1000),
            warn,
        )

    def protocol(self, server: SocketServer, now_ms: Callable[[], int]) -> Callable[[], asyncio.BaseProtocol]:
        """What asyncio calls for each new connection."""

        def accept() -> asyncio.BaseProtocol:
            connection = server.protocol()
            connection.listener_name = self.endpoint.name
            if self._logins is not None:
                login = connection.login = self._logins.new()
                connection.guard = Guard(server, login, now_ms)
                connection.has_entered = False
            if self._certificates is None:
                return connection
            connection.has_entered = False
            return TlsLayer(connection, server, self._certificates, partial(self._on_handshake, connection))

        return accept

    def _on_handshake(self, connection: ClientConnection, certificate: bytes | None) -> None:
        if self.endpoint.uses_sasl:
            return  # The login decides who the client is.
        if self._principal_of is not None and certificate is not None:
            connection.enter(self._principal_of(certificate))
        else:
            connection.enter(ANONYMOUS)


def open_listeners(
    endpoints: list[Endpoint], config: Config, brokers: int, warn: Callable[[str], None]
) -> list[Listener]:
    """Raises CannotListen or BadSetting, and leaves nothing open then."""
    listeners: list[Listener] = []
    try:
        for endpoint in endpoints:
            listeners.append(Listener(endpoint, config, brokers, warn))
    except Exception:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def connect_listeners(controller: Controller, listeners: list[Listener]) -> None:
    """The controller learns the addresses of the nodes, and the listeners learn where the users are."""
    for listener in listeners:
        listener.metadata = lambda: controller.metadata
    controller.addresses = listeners[0].given_to_clients


def addresses_by_listener(listeners: list[Listener]) -> dict[str, dict[int, BrokerAddress]]:
    """Clients get the addresses of the listener that they use."""
    return {
        listener.endpoint.name: {address.node_id: address for address in listener.given_to_clients}
        for listener in listeners
    }


def _certificate_reader() -> Callable[[bytes], str]:
    require("cryptography", "ssl.client.auth")
    from fencepost.machines.auth.certificates import principal_of

    return principal_of
