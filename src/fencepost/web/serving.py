"""Runs the workbench's server until Ctrl-C or SIGTERM."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette

from fencepost.web.guard import LOOPBACK_NAMES

# How long browsers that follow a page get to notice the end.
GRACE_S = 1


class Listening(NamedTuple):
    sock: socket.socket
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{url_host(self.host)}:{self.port}/"


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_names(host: str) -> frozenset[str]:
    """The names under which a browser on this machine reaches a server at a loopback address."""
    return LOOPBACK_NAMES | {url_host(host).lower()}


def listen(host: str, port: int) -> Listening:
    """Raises OSError if the address is taken, or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
    except BaseException:
        sock.close()
        raise
    return Listening(sock, host, sock.getsockname()[1])


def serve(app: Starlette, at: Listening, ready: Callable[[], None]) -> None:
    """Serve until a signal. KeyboardInterrupt then ends it, as in every other command."""

    class ReadyServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
    )
    ReadyServer(config).run(sockets=[at.sock])
