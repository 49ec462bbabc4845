"""The port that the lease service listens on: the first free one of those that it may use."""

from __future__ import annotations

import errno
import socket


class LeasePortTaken(Exception):
    """The service could not listen on any port that it may use."""


def parse_ports(text: str) -> range:
    """`0`: any free port; `40000`: that one; `40000-40010`: the first that is free."""
    first, dash, last = text.strip().partition("-")
    if not text.isascii() or not first.isdigit() or (dash and not last.isdigit()):
        raise ValueError(f"fencepost.lease.port={text}: expected a port, or a range FROM-TO")
    low, high = int(first), int(last or first)
    if not low <= high <= 65_535 or (dash and low == 0):
        raise ValueError(f"fencepost.lease.port={text}: ports go from 1 to 65535 (0: any), the lower one first")
    return range(low, high + 1)


def without_brackets(host: str) -> str:
    """Spark writes an IPv6 address in brackets; sockets take it without them."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def host_port(host: str, port: object) -> str:
    """As messages show it: an IPv6 address has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, ports: range) -> socket.socket:
    """Listen on the first port that is free. Raises LeasePortTaken."""
    problem: OSError | None = None
    for port in ports:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            # Of a name with addresses of both kinds, executors in the JVM take the IPv4 address.
            family, kind, protocol, _, address = next((one for one in found if one[0] == socket.AF_INET), found[0])
            listener = socket.socket(family, kind, protocol)
        except OSError as e:
            problem = e
            break
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(65_535)  # As many as the system allows: all tasks of a large job connect at once.
            return listener
        except OSError as e:
            listener.close()
            problem = e
            if e.errno != errno.EADDRINUSE:
                break
    where = host_port(host, ports[0]) + (f"-{ports[-1]}" if len(ports) > 1 else "")
    raise LeasePortTaken(
        f"the lease service cannot listen on {where}: {problem}\n\nhint: fencepost.lease.port takes a port or a range "
        "FROM-TO, fencepost.lease.bind the address to listen on if it is not the driver's own name"
    )
