"""What the connections of one broker share, above all its memory.

Nobody can make the broker hold more than it may. Requests that arrive in pieces share `queued.max.request.bytes`:
a large one needs its whole size before it is read, so whoever got that can finish. A client that takes long
in what others wait for is closed. What one connection does is in `connection.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Any

from fencepost.broker.node import Node
from fencepost.broker.rpcs import KeptRpc
from fencepost.machines.log.interface import LogTailUnknown
from fencepost.open_files import room_for_connections
from fencepost.server.complaints import Complaints
from fencepost.server.connection import AWAITING, LARGE_BYTES, SMALL_BYTES, ClientConnection

# One read takes at most this much.
SCRATCH_BYTES = 1 << 17
STALLED_S = 1.0
# A connection without a single whole request gives way to a new one at this age.
SILENT_S = 1.0
TICK_S = 1.0
IDLE_CHECK_S = 10.0
# So many get memory that there is none of, if nobody else is about to give any back.
GRANTS_A_TICK = 256
_LATE = "a request of {} bytes is still not there, and others wait for memory (queued.max.request.bytes)"
# Of so many connections that are gone, the last requests are remembered.
KEPT_CONNECTIONS = 256


class Listener:
    """Everything the connections of one broker share."""

    def __init__(
        self,
        node: Node,
        log: Callable[[str], None],
        after_work: Callable[[], None],
        die: Callable[[LogTailUnknown], None] | None = None,
    ) -> None:
        self.node = node
        self.complaints = Complaints(log)
        self.after_work = after_work  # Called after every piece of work, with timers in mind.
        # Whoever wants to measure puts something of its own in between.
        self.make_connection: Callable[[Listener], ClientConnection] = ClientConnection
        self.handle: Callable[[bytes, Any, int], None] = node.handle
        self.die = die or self._die
        config = node.cluster.config
        self.max_request_bytes: int = config["socket.request.max.bytes"]
        self.max_connections = room_for_connections(config["max.connections"])
        self.max_idle_s: float = config["connections.max.idle.ms"] / 1000
        self.max_held_bytes: int = config["queued.max.request.bytes"]
        # Unsent answers of slow readers: past this, those that stand still are closed; past twice this, the newest.
        self.max_unsent_bytes = self.max_held_bytes // 2
        self.scratch = bytearray(SCRATCH_BYTES)
        self.view = memoryview(self.scratch)
        self.small_view = self.view[:SMALL_BYTES]
        self.connections: set[ClientConnection] = set()
        # Those that never sent a whole request, oldest first, with the time they came.
        self.silent: dict[ClientConnection, float] = {}
        self.held_bytes = 0
        # Large requests that are being read, with the time they should be there.
        self.arriving: dict[ClientConnection, float] = {}
        # Connections that wait for memory, first come, first served.
        self.starved: dict[ClientConnection, None] = {}
        self.unsent_bytes = 0
        # Of connections that were ended, and whose transports have not let go of it yet.
        self.closing_bytes = 0
        # Slow readers, with the time they last took something.
        self.slow: dict[ClientConnection, float] = {}
        self.is_closing = False
        self._tick: asyncio.TimerHandle | None = None
        self._next_idle_check = 0.0
        self._is_granting = False
        # What transactional producers asked last on connections that are gone.
        self.rpcs_of_gone: deque[tuple[str, int, deque[KeptRpc]]] = deque(maxlen=KEPT_CONNECTIONS)

    def kept_rpcs(self) -> Iterator[tuple[str, int, deque[KeptRpc]]]:
        """The last requests of transactional producers, by connection: host, port, requests."""
        yield from self.rpcs_of_gone
        yield from ((c.host, c.port, c.rpcs) for c in self.connections if c.rpcs is not None)

    def protocol(self) -> ClientConnection:
        """Called by asyncio for each new connection."""
        return self.make_connection(self)

    def admit(self, connection: ClientConnection) -> str:
        """Take the connection in, or say why not. Clients that never asked anything make room first."""
        now = monotonic()
        if self.is_closing:
            return "the broker is stopping"
        if len(self.connections) >= self.max_connections:
            oldest = next(iter(self.silent), None)
            if oldest is None or now - self.silent[oldest] < SILENT_S:
                return f"there are {len(self.connections)} connections, and no more are allowed (max.connections)"
            oldest.abort("it asked for nothing yet, and others want to connect (max.connections)")
        self.connections.add(connection)
        self.silent[connection] = now
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(TICK_S, self._on_tick)
        return ""

    # --- memory for requests ------------------------------------------------------------------------------

    def hold(self, more_bytes: int) -> None:
        """Connections hold so much more, or less."""
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

    # --- now and then -------------------------------------------------------------------------------------

    def _on_tick(self) -> None:
        self._tick = None
        now = monotonic()
        self.complaints.flush()
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
        """All memory is held by those who wait for more of it: let some go on, and they have their time."""
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
        """End connections that said nothing for too long, unless it is we who owe them an answer."""
        oldest = monotonic() - self.max_idle_s
        for connection in list(self.connections):
            if connection.last_active < oldest and connection.state is not AWAITING:
                connection.abort(f"idle for more than {self.max_idle_s:g} s (connections.max.idle.ms)")

    def close(self) -> None:
        self.is_closing = True
        if self._tick is not None:
            self._tick.cancel()
        for connection in list(self.connections):
            connection.close("")
        self.complaints.flush()

    def _die(self, error: LogTailUnknown) -> None:
        self.complaints.line(f"error: {error}")
        os._exit(1)
