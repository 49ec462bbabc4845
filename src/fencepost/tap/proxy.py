"""The tap itself: its listeners, the broker behind each, its faults, and what it has seen.

`--listen` is the first listener and leads to the bootstrap servers. Each broker that appears in a reply gets a listener
of its own, on the next free port, and keeps it for the run, also when the broker moves to another address.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fencepost.client.settings import ClientSettings
from fencepost.client.tls import tls_context
from fencepost.faults.fault import Fault, FaultTable
from fencepost.protocol.apis import api_names
from fencepost.tap.decoding import WireEvent
from fencepost.tap.link import Link
from fencepost.tap.sides import address_text

BACKLOG = 256
PORTS_TRIED = 100
MOST_BROKERS = 1000
MOST_TOPICS = 100_000
MOST_COMPLAINTS = 1000
# The same problem is told again after this time.
COMPLAINT_PAUSE_S = 10.0
CLOSE_TIMEOUT_S = 2.0

Address = tuple[str, int]


class PortUnusable(Exception):
    """The address for clients cannot be used."""


class Unreached(OSError):
    """No broker could be reached. The message has the reason for each address."""


class TapPort:
    """A port for clients, and the addresses that it leads to: the first that answers is taken."""

    def __init__(self, sock: socket.socket, targets: tuple[Address, ...], node_id: int | None = None) -> None:
        self.sock = sock
        self.port: int = sock.getsockname()[1]
        self.targets = targets
        self.node_id = node_id


class Proxy:
    """`show` gets the events, `say` the sentences for the operator."""

    def __init__(
        self,
        settings: ClientSettings,
        listen: Address,
        *,
        show: Callable[[WireEvent], None],
        say: Callable[[str], None],
        shows_fetches: bool = False,
        client_tls: ssl.SSLContext | None = None,
        advertised_host: str | None = None,
    ) -> None:
        self.show = show
        self.shows_fetches = shows_fetches
        self.faults = FaultTable()
        self.links: set[Link] = set()
        self._say = say
        self._settings = settings
        self._host, self._port = listen
        self._advertised_host = advertised_host
        self._next_port = self._port + 1 if self._port else 0  # For brokers; 0: any.
        self._client_tls = client_tls
        self._broker_tls = tls_context(settings.tls) if settings.uses_tls else None
        self._listeners: list[TapPort] = []
        self._by_node: dict[int, TapPort] = {}
        self._first_peers: set[Address] = set()
        self._topic_names: dict[bytes, str] = {}
        self._complaints: dict[str, float] = {}
        self._last_link = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.open_sides = 0  # Connections to clients and brokers.
        self._all_closed = asyncio.Event()

    @property
    def port(self) -> int:
        return self._listeners[0].port

    @property
    def address(self) -> str:
        return address_text((self._host, self.port))

    @property
    def opened(self) -> int:
        """The connections of clients so far."""
        return self._last_link

    # --- its life -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises PortUnusable, or Unreached if no bootstrap server can be reached now."""
        transport, _ = await self._connect_to(self._settings.bootstrap, asyncio.Protocol)
        transport.close()
        try:
            sock = _bound(self._host, self._port)
        except OSError as e:
            raise PortUnusable(
                f"cannot listen on {address_text((self._host, self._port))}: {e.strerror or e}"
            ) from None
        await self._serve(self._listen_on(sock, self._settings.bootstrap))

    async def close(self) -> None:
        """Close all connections; what was received is passed on first."""
        for server in self._servers:
            server.close()
        for link in list(self.links):
            link.close()
        for task in list(self._tasks):
            task.cancel()
        if self.open_sides:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), CLOSE_TIMEOUT_S)
        for listener in self._listeners:
            listener.sock.close()

    def side_opened(self) -> None:
        self.open_sides += 1
        self._all_closed.clear()

    def side_closed(self) -> None:
        self.open_sides -= 1
        if not self.open_sides:
            self._all_closed.set()

    def _listen_on(self, sock: socket.socket, targets: tuple[Address, ...], node_id: int | None = None) -> TapPort:
        listener = TapPort(sock, targets, node_id)
        self._listeners.append(listener)
        return listener

    async def _serve(self, listener: TapPort) -> None:
        def accept() -> asyncio.Protocol:
            self._last_link += 1
            return Link(self, listener, self._last_link).client

        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(accept, sock=listener.sock, ssl=self._client_tls))

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the cluster --------------------------------------------------------------------------------------

    async def connect(self, link: Link) -> str:
        """Connect the link to its broker; return its address. Raises Unreached."""
        transport, target = await self._connect_to(link.listener.targets, lambda: link.broker)
        if link.listener is self._listeners[0]:
            self._first_peers.add(transport.get_extra_info("peername")[:2])
        return address_text(target)

    async def _connect_to(
        self, targets: tuple[Address, ...], protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, Address]:
        loop, problems = asyncio.get_running_loop(), []
        for host, port in targets:
            name = host if self._broker_tls is not None else None
            try:
                async with asyncio.timeout(self._settings.connect_timeout_s):
                    transport, _ = await loop.create_connection(
                        protocol, host, port, ssl=self._broker_tls, server_hostname=name
                    )
                return transport, (host, port)
            except TimeoutError:
                problems.append(
                    f"{address_text((host, port))} did not answer within {self._settings.connect_timeout_s:g} s"
                )
            except ssl.SSLCertVerificationError as e:
                problems.append(
                    f"the certificate of {address_text((host, port))} is not to be trusted: {e.verify_message}"
                )
            except (OSError, ValueError, OverflowError) as e:  # Such as a host name with an empty label.
                problems.append(f"cannot connect to {address_text((host, port))}: {_reason(e)}")
        raise Unreached("; ".join(problems))

    def address_of(self, node_id: int, host: str, port: int, own_host: str) -> Address | None:
        """The address of the tap for a broker; None if the tap cannot listen for it."""
        listener = self._by_node.get(node_id)
        if listener is None:
            listener = self._first_as(host, port) or self._open(node_id)
            if listener is None:
                return None
            listener.node_id = node_id
            self._by_node[node_id] = listener
        # New clients come to the first port, and get any broker if this one does not answer.
        more = self._settings.bootstrap if listener is self._listeners[0] else ()
        listener.targets = tuple(dict.fromkeys([(host, port), *more]))
        own = own_host if _is_wildcard(self._host) else self._host
        return self._advertised_host or own, listener.port

    def _first_as(self, host: str, port: int) -> TapPort | None:
        """The first listener, if it leads to this broker and no other: one bootstrap server, which is this broker."""
        first, bootstrap = self._listeners[0], self._settings.bootstrap
        is_it = bootstrap == ((host, port),) or (len(bootstrap) == 1 and self._first_peers == {(host, port)})
        return first if first.node_id is None and is_it else None

    def _open(self, node_id: int) -> TapPort | None:
        """A listener for a broker, on the next port that is free. Without one, clients go around the tap."""
        problem = f"there are more than {MOST_BROKERS} brokers"
        for _ in range(PORTS_TRIED if len(self._listeners) <= MOST_BROKERS else 0):
            port = self._next_port
            self._next_port = port + 1 if port else 0
            try:
                listener = self._listen_on(_bound(self._host, port), ())
            except (OSError, OverflowError) as e:
                problem = f"port {port}: {getattr(e, 'strerror', None) or e}"
                if isinstance(e, OSError) and e.errno == errno.EADDRINUSE:
                    continue
                break
            self.start_task(self._serve(listener))
            return listener
        self.complain(f"the tap cannot listen for broker {node_id}, and clients go around it: {problem}")
        return None

    # --- what it has seen ---------------------------------------------------------------------------------

    def topic_name(self, topic_id: bytes) -> str:
        return self._topic_names.get(topic_id) or topic_id.hex()

    def learn_topics(self, names: dict[bytes, str]) -> None:
        if len(self._topic_names) > MOST_TOPICS:
            self._topic_names.clear()
        self._topic_names |= names

    def complain(self, text: str, problem: str | None = None) -> None:
        """Say it, unless the same problem was told a moment ago: clients try again and again."""
        problem = problem or text
        now = time.monotonic()
        if now - self._complaints.get(problem, -COMPLAINT_PAUSE_S) < COMPLAINT_PAUSE_S:
            return
        if len(self._complaints) >= MOST_COMPLAINTS:
            self._complaints.clear()
        self._complaints[problem] = now
        self._say(text)

    def warn_of_version(self, api_key: int, version: int) -> None:
        name = api_names().get(api_key, f"API {api_key}")
        self.complain(
            f"{name} v{version} is newer than this tap knows: its addresses stay as they are, and clients may go "
            "around the tap"
        )

    # --- faults -------------------------------------------------------------------------------------------

    def add_fault(self, fault: Fault) -> int:
        return self.faults.add(fault)

    def remove_fault(self, number: int) -> None:
        """End it. What it delays goes on, and connections that it left without an answer are closed, so that their
        clients reconnect soon.
        """
        fault = self.faults.find(number)
        for link in self.faults.remove(number):
            link.close()
        for link in list(self.links):
            link.end_delay(fault)

    def clear_faults(self) -> None:
        for number in self.faults.numbers():
            self.remove_fault(number)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _is_wildcard(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    # asyncio writes "[Errno 111] Connect call failed ('127.0.0.1', 1)".
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
