"""The state that the connections of one broker share, above all its memory.

Clients cannot make the broker hold more memory than its settings allow. Requests that arrive in pieces share
`queued.max.request.bytes`. A large request is read only once its whole size is reserved, so it can be completed. While
others wait for memory, a client that is slow to send its request or to read its answers is closed. One connection is in
`connection.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Any

from fencepost.broker.acls import NODE
from fencepost.broker.node import Frame, Node
from fencepost.broker.rpcs import KeptRpc
from fencepost.machines.log.interface import LogTailUnknown
from fencepost.open_files import room_for_connections
from fencepost.protocol.schema import Malformed
from fencepost.server.complaints import Complaints
from fencepost.server.connection import ClientConnection
from fencepost.server.flow_control import AWAITING, LARGE_BYTES, SMALL_BYTES, FlowControl
from fencepost.server.tls import Handshakes

# One read takes at most this much.
SCRATCH_BYTES = 1 << 17
STALLED_S = 1.0
# A TLS handshake and a login must be done after this time.
ENTERING_S = 30.0
# At this age, a connection that has not sent a complete request may be closed for a new one.
SILENT_S = 1.0
TICK_S = 1.0
IDLE_CHECK_S = 10.0
# The number of connections that get memory beyond the limit in one tick, if no other connection will give any back.
GRANTS_A_TICK = 256
_LATE = "a request of {} bytes is still not there, and others wait for memory (queued.max.request.bytes)"
# The number of closed connections of which the last requests are kept.
KEPT_CONNECTIONS = 256


Handle = Callable[[Frame, Any, int], None]


class SocketServer:
    """Accepts the connections of one broker, of all its listeners, and divides its memory among them, as in Kafka."""

    def __init__(
        self,
        node: Node,
        complaints: Complaints,
        after_work: Callable[[], None],
        die: Callable[[LogTailUnknown], None] | None = None,
        debug: Callable[[str], None] | None = None,
    ) -> None:
        self.node = node
        self.complaints = complaints
        self.debug = debug  # Logs every connection that comes and goes.
        self.after_work = after_work  # Called after every turn of a connection: it runs the timers that are due.
        # `metrics.py` and `faults.py` replace these.
        self.make_connection: Callable[[SocketServer], ClientConnection] = ClientConnection
        self.handle: Handle = node.handle
        self.die = die or self._die
        config = node.cluster.config
        self.max_request_bytes: int = config["socket.request.max.bytes"]
        self.max_connections = room_for_connections(config["max.connections"])
        self.max_idle_s: float = config["connections.max.idle.ms"] / 1000
        self.max_held_bytes: int = config["queued.max.request.bytes"]
        # Unsent answers to slow readers: beyond this, clients that read nothing are closed; beyond twice this, any.
        self.max_unsent_bytes = self.max_held_bytes // 2
        self.scratch = bytearray(SCRATCH_BYTES)
        self.view = memoryview(self.scratch)
        self.small_view = self.view[:SMALL_BYTES]
        self.connections: set[ClientConnection] = set()
        # Connections without a complete request so far, oldest first, with the time of their accept.
        self.silent: dict[ClientConnection, float] = {}
        # Connections whose TLS handshake or login is not done, and the time by which it must be.
        self.entering: dict[ClientConnection, float] = {}
        self.handshakes = Handshakes()
        self.held_bytes = 0
        # Connections with a large request that is being read, and the time by which it must be complete.
        self.arriving: dict[FlowControl, float] = {}
        # Connections that wait for memory, first come, first served.
        self.starved: dict[FlowControl, None] = {}
        self.unsent_bytes = 0
        # Unsent bytes of aborted connections that their transports have not freed yet.
        self.closing_bytes = 0
        # Slow readers, with the time when they last read something.
        self.slow: dict[FlowControl, float] = {}
        self.is_closing = False
        self._tick: asyncio.TimerHandle | None = None
        self._next_idle_check = 0.0
        self._is_granting = False
        # The last requests of transactional producers on connections that are closed: host, port, requests.
        self.rpcs_of_gone: deque[tuple[str, int, deque[KeptRpc]]] = deque(maxlen=KEPT_CONNECTIONS)

    def kept_rpcs(self) -> Iterator[tuple[str, int, deque[KeptRpc]]]:
        """The last requests of transactional producers, by connection: host, port, requests."""
        yield from self.rpcs_of_gone
        yield from ((c.host, c.port, c.rpcs) for c in self.connections if c.rpcs is not None)

    def protocol(self) -> ClientConnection:
        """Called by asyncio for each new connection."""
        return self.make_connection(self)

    def admit(self, connection: ClientConnection) -> str:
        """Accept the connection, or return why not. An old connection without any request is closed to make room."""
        now = monotonic()
        if self.is_closing:
            return "the broker is stopping"
        # Kafka: other nodes may connect beyond `max.connections`. Otherwise clients could stop transactions.
        if len(self.connections) >= self.max_connections and connection.principal != NODE:
            oldest = self._oldest_stranger(now)
            if oldest is None:
                return f"there are {len(self.connections)} connections, and no more are allowed (max.connections)"
            oldest.abort("it asked for nothing yet, and others want to connect (max.connections)")
        self.connections.add(connection)
        self.silent[connection] = now
        if not connection.has_entered:
            self.entering[connection] = now + ENTERING_S
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(TICK_S, self._on_tick)
        if self.debug is not None:
            self.debug(f"{connection.host}:{connection.port} connected, {len(self.connections)} connections")
        return ""

    def _oldest_stranger(self, now: float) -> ClientConnection | None:
        """A connection that may be closed for a new one: without any request so far, or without a login."""
        silent, entering = next(iter(self.silent), None), next(iter(self.entering), None)
        if silent is not None and now - self.silent[silent] >= SILENT_S:
            return silent
        if entering is not None and self.entering[entering] - now <= ENTERING_S - SILENT_S:
            return entering
        return None

    def leave(self, connection: ClientConnection) -> None:
        """The connection has ended."""
        self.connections.discard(connection)
        if connection.rpcs is not None:
            self.rpcs_of_gone.append((connection.host, connection.port, connection.rpcs))
        if self.debug is not None:
            self.debug(f"{connection.host}:{connection.port} left, {len(self.connections)} connections")

    # --- memory for requests ------------------------------------------------------------------------------

    def hold(self, more_bytes: int) -> None:
        """Count bytes that connections hold more, or less."""
        self.held_bytes += more_bytes
        if self.starved and not self._is_granting and self.held_bytes < self.max_held_bytes:
            self._is_granting = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _grant(self) -> None:
        self._is_granting = False
        while self.starved and self.held_bytes < self.max_held_bytes:
            connection = next(iter(self.starved))
            del self.starved[connection]
            connection.read_large()

    # --- every second -------------------------------------------------------------------------------------

    def _on_tick(self) -> None:
        self._tick = None
        now = monotonic()
        self.complaints.flush()
        if self.entering:
            self._close_strangers(now)
        if self.starved:
            self._close_late(now)
        if self.slow:
            self._close_stalled(now)
        if now >= self._next_idle_check:
            self._next_idle_check = now + min(IDLE_CHECK_S, self.max_idle_s / 4)
            self.close_idle()
        if self.connections and not self.is_closing:
            delay = min(TICK_S, self.max_idle_s / 4)
            self._tick = asyncio.get_running_loop().call_later(delay, self._on_tick)

    def _close_strangers(self, now: float) -> None:
        for connection, due in list(self.entering.items()):
            if due > now:
                return
            connection.abort(f"its TLS handshake or its login was not done after {ENTERING_S:g} s")

    def _close_late(self, now: float) -> None:
        for connection, due in list(self.arriving.items()):
            if due < now:
                connection.abort(_LATE.format(connection.inbox.begun_bytes))
        for connection in list(self.connections):
            if connection.is_stuck(now):
                connection.abort(_LATE.format(connection.inbox.begun_bytes))
        if not self.arriving:
            self._grant_some()

    def _grant_some(self) -> None:
        """All memory is held by connections that wait for more: let some continue, with their usual deadline."""
        for number, connection in enumerate(list(islice(self.starved, GRANTS_A_TICK))):
            if number == 0 or connection.inbox.begun_bytes <= LARGE_BYTES:
                del self.starved[connection]
                connection.read_large()

    def _close_stalled(self, now: float) -> None:
        for connection in list(self.slow):
            connection.note_progress(now)
        for connection, since in sorted(self.slow.items(), key=lambda item: item[1]):
            if self.unsent_bytes <= self.max_unsent_bytes or now - since < STALLED_S:
                return
            connection.abort(f"it does not read its answers, and {self.unsent_bytes} bytes of answers are unsent")

    def close_idle(self) -> None:
        """Close connections that were silent for too long, except those that wait for an answer."""
        oldest = monotonic() - self.max_idle_s
        for connection in list(self.connections):
            if connection.last_active < oldest and connection.state is not AWAITING:
                connection.abort(f"idle for more than {self.max_idle_s:g} s (connections.max.idle.ms)")

    def handle_late(self, handle: Handle, frame: Frame, connection: Any, now_ms: int) -> None:
        """Handle a request that was held back, also if its client has left: on a real network it would arrive too."""
        try:
            handle(frame, connection, now_ms)
        except Malformed as e:
            connection.close(f"malformed request: {e}")
        except LogTailUnknown as e:
            self.die(e)
        except Exception as e:
            self.complaints.bug(e)
            connection.abort(f"the request could not be served: {type(e).__name__}: {e}")
        self.after_work()

    def reopen(self) -> None:
        """Accept connections again, after `close`."""
        self.is_closing = False

    def close(self) -> None:
        self.is_closing = True
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        for connection in list(self.connections):
            connection.close("")
        self.complaints.flush()

    def _die(self, error: LogTailUnknown) -> None:
        self.complaints.line(str(error))
        os._exit(1)
