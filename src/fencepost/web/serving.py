"""Runs the workbench's server until Ctrl-C or SIGTERM."""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette

from fencepost.web.guard import LOOPBACK_NAMES

# How long browsers that follow a page get to notice the end.
GRACE_S = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    """Serve until Ctrl-C or SIGTERM, whenever they come. Later ones do not disturb the end of the process."""

    class ReadyServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                ready()

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # Uvicorn would raise KeyboardInterrupt at the end, and leave out the clean-up at a second Ctrl-C.

        def stop(self, *_: object) -> None:
            self.should_exit = True
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
    )
    server = ReadyServer(config)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, server.stop)
    server.run(sockets=[at.sock])
