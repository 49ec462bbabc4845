"""`listeners`, `advertised.listeners` and `listener.security.protocol.map`: where clients connect, and how.

Kafka's form of the first two is a list of NAME://HOST:PORT. The name of a listener is also the name of its protocol,
unless the map says otherwise. Names may be written in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PROTOCOL_MAP = ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS)
MAX_PORT = 65_535
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # "All addresses of this machine": a client cannot connect to it.
_EXAMPLE = "\n\nhint: write NAME://HOST:PORT, for example PLAINTEXT://broker.example.com:9092"


class BadListener(ValueError):
    """The text names no listener that clients could use. The message completes the sentence `name=text ...`."""


class Endpoint(NamedTuple):
    """One listener: its name, its protocol, the address it is bound to, and the address that clients are given."""

    name: str
    protocol: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None  # None: the address that the listener is bound to.

    @property
    def uses_tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)


def parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    """The address of each listener, by name. An empty host means every address, port 0 a free one."""
    found = _parse(text, least_port=0)
    return {name: (host or "0.0.0.0", port) for name, (host, port) in found.items()}


def parse_advertised(text: str) -> dict[str, tuple[str, int]]:
    """The address that clients of each listener are given, by the listener's name."""
    found = _parse(text, least_port=1)
    for name, (host, _) in found.items():
        if not host:
            raise BadListener(f"has no host for the listener {name}{_EXAMPLE}")
        if host in EVERY_ADDRESS:
            raise BadListener(
                f"advertises {host}, which means every address of a machine: clients cannot connect to it\n\n"
                "hint: advertise the name or the address by which clients reach this broker"
            )
    return found


def _parse(text: str, least_port: int) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = part.partition("://")
        name = name.upper()
        if not separator or not name:
            raise BadListener(f"has no listener name before {address or part}{_EXAMPLE}")
        if name in found:
            raise BadListener(f"names the listener {name} twice\n\nhint: give each listener a name of its own")
        host, colon, port = address.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        if is_bracketed:
            host = host[1:-1]
        if not colon or (":" in host) != is_bracketed or any(c.isspace() or c == "/" for c in host):
            raise BadListener(f"has no HOST:PORT after {name}://, but {address or 'nothing'}{_EXAMPLE}")
        if not (port.isascii() and port.isdigit()) or not least_port <= int(port) <= MAX_PORT:
            raise BadListener(
                f"has the port {port or '(none)'}, expected one from {least_port} to {MAX_PORT}{_EXAMPLE}"
            )
        found[name] = host, int(port)
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """The protocol of each listener, by the listener's name."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (word.strip().upper() for word in part.partition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise BadListener(f"has {part}\n\nhint: write NAME:PROTOCOL, with one of {', '.join(PROTOCOLS)}")
        if found.setdefault(name, protocol) != protocol:
            raise BadListener(f"gives the listener {name} two protocols, {found[name]} and {protocol}")
    return found


def endpoints_of(
    listeners: Mapping[str, tuple[str, int]], advertised: Mapping[str, tuple[str, int]], protocols: Mapping[str, str]
) -> list[Endpoint]:
    """The listeners, in the order in which they were given. Raises BadListener if the three settings disagree."""
    unknown = next((name for name in advertised if name not in listeners), None)
    if unknown is not None:
        raise BadListener(
            f"advertised.listeners names the listener {unknown}, but the broker has only {', '.join(listeners)}\n\n"
            "hint: each name in advertised.listeners must be one of the names in listeners"
        )
    unmapped = next((name for name in listeners if name not in protocols), None)
    if unmapped is not None:
        raise BadListener(
            f"the listener {unmapped} has no protocol\n\n"
            f"hint: name it in listener.security.protocol.map, for example {unmapped}:SASL_SSL"
        )
    taken: dict[tuple[str, int], str] = {}
    for name, address in listeners.items():
        if address[1] and taken.setdefault(address, name) != name:
            raise BadListener(
                f"the listeners {taken[address]} and {name} have the same address {format_address(*address)}\n\n"
                "hint: give each listener a port of its own"
            )
    # Differs: In Kafka, clients of a listener that is not in `advertised.listeners` find no broker. Fencepost gives
    # them the address of that listener.
    return [Endpoint(name, protocols[name], *listeners[name], advertised.get(name)) for name in listeners]


def format_listener(host: str, port: int, name: str = PLAINTEXT) -> str:
    """NAME://HOST:PORT."""
    return f"{name}://{format_address(host, port)}"


def format_address(host: str, port: int) -> str:
    """HOST:PORT, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
