"""`advertised.listeners`: the address that the broker gives to clients that cannot use its listening address.

Kafka's form is a list of NAME://HOST:PORT. This broker has one listener, which speaks plaintext.
"""

from __future__ import annotations

MAX_PORT = 65_535
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # "All addresses of this machine": a client cannot connect to it.
_EXAMPLE = "\n\nhint: write PLAINTEXT://HOST:PORT, for example PLAINTEXT://broker.example.com:9092"


class BadListener(ValueError):
    """The text names no address that clients could be given. The message completes the sentence `name=text ...`."""


def parse_listener(text: str) -> tuple[str, int] | None:
    """Host and port of `PLAINTEXT://HOST:PORT`; None if the text is empty. Raises BadListener."""
    if not text:
        return None
    # Differs: Kafka takes a list of listeners, each with a name and a protocol. Fencepost has one listener, PLAINTEXT.
    if "," in text:
        raise BadListener(f"has {text.count(',') + 1} addresses, but this broker has one listener{_EXAMPLE}")
    protocol, separator, address = text.partition("://")
    if not separator:
        raise BadListener(f"has no protocol{_EXAMPLE}")
    # Kafka: the name of a listener may be written in any case.
    if protocol.upper() != "PLAINTEXT":
        raise BadListener(f"names the listener {protocol}, but this broker has only PLAINTEXT{_EXAMPLE}")
    host, colon, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host) != is_bracketed or any(c.isspace() or c == "/" for c in host):
        raise BadListener(f"has no HOST:PORT after PLAINTEXT://, but {address or 'nothing'}{_EXAMPLE}")
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= MAX_PORT:
        raise BadListener(f"has the port {port or '(none)'}, but clients need one from 1 to {MAX_PORT}{_EXAMPLE}")
    if host in EVERY_ADDRESS:
        raise BadListener(
            f"advertises {host}, which means every address of a machine: clients cannot connect to it\n\n"
            "hint: advertise the name or the address by which clients reach this broker"
        )
    return host, int(port)


def format_listener(host: str, port: int) -> str:
    """The inverse of `parse_listener`."""
    return f"PLAINTEXT://{format_address(host, port)}"


def format_address(host: str, port: int) -> str:
    """HOST:PORT, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
