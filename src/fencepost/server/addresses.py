"""The addresses of a broker: those it listens on, and those that it gives to clients."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from fencepost.broker.cluster import BrokerAddress
from fencepost.broker.config import BadSetting, Config
from fencepost.broker.listeners import (
    EVERY_ADDRESS,
    MAX_PORT,
    SSL,
    BadListener,
    Endpoint,
    endpoints_of,
    format_address,
    parse_advertised,
    parse_listeners,
    parse_protocol_map,
)

FREE_ROW_TRIES = 100
BACKLOG = 4096


class CannotListen(Exception):
    """The address is in use, or is not an address of this machine; or clients cannot be given one."""


def endpoints(config: Config, host: str, port: int) -> list[Endpoint]:
    """The listeners. Without the setting `listeners` there is one, PLAINTEXT at this address. Raises BadSetting."""
    listeners = parse_listeners(config["listeners"]) or {"PLAINTEXT": (host, port)}
    protocols = parse_protocol_map(config["listener.security.protocol.map"])
    try:
        return endpoints_of(listeners, parse_advertised(config["advertised.listeners"]), protocols)
    except BadListener as e:
        raise BadSetting(str(e)) from None


def bind(host: str, first_port: int, count: int = 1) -> list[socket.socket]:
    """One socket per broker: PORT, PORT+1, and so on; port 0 picks free ports in a row. Raises CannotListen."""
    if first_port or count == 1:
        return _bind_row(host, first_port, count)
    for _ in range(FREE_ROW_TRIES):
        (first,) = _bind_row(host, 0, 1)
        try:
            return [first, *_bind_row(host, first.getsockname()[1] + 1, count - 1)]
        except CannotListen:
            first.close()
    raise CannotListen(f"there are no {count} free ports in a row\n\nhint: choose the first with --listen HOST:PORT")


def listen(sock: socket.socket) -> None:
    """Raises CannotListen. uvloop's servers do not say that they cannot, so each socket listens before it gets one."""
    try:
        sock.listen(BACKLOG)
    except OSError as e:
        host, port = sock.getsockname()[:2]
        raise _cannot_listen(host, port, e) from None


def _cannot_listen(host: str, port: int, error: OSError) -> CannotListen:
    return CannotListen(
        f"cannot listen on {format_address(host, port)}: {error.strerror}\n\n"
        "hint: choose another address with --listen HOST:PORT; port 0 picks a free one"
    )


def _bind_row(host: str, first_port: int, count: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for i in range(count):
        port = first_port + i if first_port else 0
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if port > MAX_PORT:
                raise OSError(errno.EADDRNOTAVAIL, f"there is no port {port}")
            sock.bind((host, port))
        except OSError as e:
            for opened in [*sockets, sock]:
                opened.close()
            raise _cannot_listen(host, port, e) from None
        sockets.append(sock)
    return sockets


def listening(sockets: Sequence[socket.socket], host: str, first_id: int) -> list[BrokerAddress]:
    """Where the brokers listen: the host as it was given, the ports as they were bound."""
    return [BrokerAddress(first_id + i, host, sock.getsockname()[1]) for i, sock in enumerate(sockets)]


def advertised(listening: Sequence[BrokerAddress], chosen: tuple[str, int] | None) -> list[BrokerAddress]:
    """The addresses that clients are given: the chosen one for the first broker, and the ports after it for the others.

    Without a choice they are those that the brokers listen on, and the machine's name instead of "every address".
    """
    # Differs: Kafka refuses to listen on 0.0.0.0 without `advertised.listeners`. Fencepost gives clients the name of
    # the machine then.
    if chosen is None:
        return [
            broker._replace(host=socket.gethostname()) if broker.host in EVERY_ADDRESS else broker
            for broker in listening
        ]
    host, port = chosen
    last_port = port + len(listening) - 1
    if last_port > MAX_PORT:
        raise CannotListen(
            f"{len(listening)} brokers cannot be advertised from port {port} on: the last would be {last_port}\n\n"
            f"hint: advertise a port up to {MAX_PORT + 1 - len(listening)}"
        )
    return [broker._replace(host=host, port=port + i) for i, broker in enumerate(listening)]


def is_loopback(sock: socket.socket) -> bool:
    """Whether only programs on this machine can connect."""
    return ipaddress.ip_address(sock.getsockname()[0].split("%")[0]).is_loopback


def client_auth(config: Config, endpoint: Endpoint) -> str:
    """`ssl.client.auth` of a listener with TLS."""
    # Kafka: a listener with SASL ignores the value for all listeners, and only takes one with its own prefix.
    found: str = config.for_listener(endpoint.name, "ssl.client.auth", is_own=endpoint.uses_sasl)
    return found


def knows_its_clients(config: Config, endpoint: Endpoint) -> bool:
    """Whether every client of the listener has to prove who it is."""
    return endpoint.uses_sasl or (endpoint.protocol == SSL and client_auth(config, endpoint) == "required")


def exposure(config: Config, endpoint: Endpoint, sockets: Sequence[socket.socket]) -> str | None:
    """The warning about a listener that other machines reach without authentication; None if there is no such danger.

    Raises CannotListen unless `fencepost.allow.unauthenticated` is set.
    """
    exposed = next((sock for sock in sockets if not is_loopback(sock)), None)
    if exposed is None or knows_its_clients(config, endpoint):
        return None
    address = format_address(*exposed.getsockname()[:2])
    if not config["fencepost.allow.unauthenticated"]:
        raise CannotListen(
            f"the listener {endpoint.name} at {address} can be reached from other machines, without authentication\n\n"
            "hint: let clients log in (docs/guides/security.md), or allow everyone everything with "
            "--set fencepost.allow.unauthenticated=true"
        )
    return (
        f"{address} can be reached from other machines, without authentication: "
        "every client that connects can read, write and delete everything"
    )
