"""The workbench beside a broker: `fencepost broker --web` runs `fencepost web` as a process of its own.

A page that asks much of the workbench then takes no time from the broker. The child ends when its stdin closes, which
it does however the broker ends.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fencepost.cli.errors import Failure, WrongUse
from fencepost.cli.streams import say

if TYPE_CHECKING:
    from fencepost.server.listeners import Listener

DEFAULT_WEB_ADDRESS = "127.0.0.1:8080"
PLAINTEXT = "PLAINTEXT"
STOP_TIMEOUT_S = 5.0
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check_web(address: str, protocols: Collection[str]) -> None:
    """Raises Failure or WrongUse if the workbench cannot run beside a broker whose listeners have these protocols."""
    from fencepost.cli.broker import parse_address
    from fencepost.cli.web import INSTALL

    host, _ = parse_address(address)
    try:
        from fencepost.web.serving import is_loopback
    except ModuleNotFoundError as e:
        raise Failure(f"not installed: {e.name}", INSTALL) from None
    if not is_loopback(host):
        raise WrongUse(
            f"other machines reach {address}, and --web has no token",
            "run `fencepost web --token-file FILE` beside the broker, or use a loopback address",
        )
    if PLAINTEXT not in protocols:
        raise WrongUse(
            "--web needs a listener without login and TLS",
            "add a PLAINTEXT listener on 127.0.0.1, or run `fencepost web --command-config FILE` beside the broker",
        )


class WorkbenchBeside:
    def __init__(self, address: str) -> None:
        self._address = address
        self._child: subprocess.Popen[str] | None = None
        self._is_stopping = False

    def start(self, listeners: Sequence[Listener]) -> None:
        """Call it when clients can connect to the broker."""
        from fencepost.child import start_module

        bootstrap = bootstrap_of(listeners)
        arguments = ("--bootstrap", bootstrap, "--listen", self._address, "--until-stdin-closes")
        self._child = start_module("fencepost", "web", *arguments)
        threading.Thread(target=self._announce, args=(self._child,), daemon=True).start()

    def _announce(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        ready = child.stdout.readline().split()
        if ready[:1] == ["ready"]:
            say(f"the workbench is at {ready[1]}")
        elif not self._is_stopping:
            # The child has said why, with the hints of `fencepost web`.
            say(
                "warning: the broker runs without the workbench\n\nhint: if its address was the reason, choose another "
                "address with --web HOST:PORT; --listen is for the broker"
            )

    def stop(self) -> None:
        child = self._child
        if child is None:
            return
        self._is_stopping = True
        assert child.stdin is not None
        with suppress(OSError):
            child.stdin.close()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def bootstrap_of(listeners: Sequence[Listener]) -> str:
    """The address of each node, as a client on the same machine reaches it without a login."""
    listener = next(listener for listener in listeners if listener.endpoint.protocol == PLAINTEXT)
    hosts = [(EVERY_ADDRESS.get(host, host), port) for _, host, port in listener.listens_on]
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
