"""The addresses of a broker: those it listens on, and those that it gives to clients."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from fencepost.broker.advertised import EVERY_ADDRESS, MAX_PORT, format_address
from fencepost.broker.cluster import BrokerAddress

FREE_ROW_TRIES = 100


class CannotListen(Exception):
    """The address is in use, or is not an address of this machine; or clients cannot be given one."""


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
            raise CannotListen(
                f"cannot listen on {format_address(host, port)}: {e.strerror}\n\n"
                "hint: choose another address with --listen HOST:PORT; port 0 picks a free one"
            ) from None
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


def exposure(sockets: Sequence[socket.socket]) -> str | None:
    """The warning about sockets that other machines can reach; None if only programs on this machine can."""
    for sock in sockets:
        host, port = sock.getsockname()[:2]
        if not ipaddress.ip_address(host.split("%")[0]).is_loopback:
            return (
                f"{format_address(host, port)} can be reached from other machines, without authentication: "
                "every client that connects can read, write and delete everything"
            )
    return None
