"""The states of a connection, the memory that it holds, and whether its client may send more.

The connection stops reading from a client that does not read its answers, or that keeps sending while an answer is due.
The memory is that of all connections together, so the counts are kept in `socket_server.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING

from fencepost.server.inbox import Inbox

if TYPE_CHECKING:
    from fencepost.server.socket_server import SocketServer


class ConnectionState(Enum):
    """How the connection handles its client's requests now."""

    READY = "ready"  # Every request was answered; the next one is handled when its bytes arrive.
    HANDLING = "handling"  # The broker handles a request and has not answered it.
    ANSWERED = "answered"  # The broker answered before it returned: the answer leaves together with the next ones.
    AWAITING = "awaiting"  # The broker returned without an answer, which will come later.
    SCHEDULED = "scheduled"  # The event loop will call `_next_turn`, which handles the requests in the inbox.
    CLOSED = "closed"  # No request is handled any more, and no answer leaves.


READY, HANDLING, ANSWERED, AWAITING, SCHEDULED, CLOSED = ConnectionState
MOVES: Mapping[ConnectionState, Set[ConnectionState]] = {
    READY: {HANDLING, SCHEDULED, CLOSED},
    HANDLING: {ANSWERED, AWAITING, CLOSED},
    ANSWERED: {HANDLING, READY, CLOSED},
    AWAITING: {READY, CLOSED},
    SCHEDULED: {READY, CLOSED},
    CLOSED: set(),
}


# A larger request is read into memory of its own; a smaller one is put together from its pieces.
LARGE_BYTES = 1 << 16
# How much a connection may hold while there is no memory left for requests.
SMALL_BYTES = 1 << 12
# How much a connection may hold behind a request that is not answered yet.
MAX_WAITING_BYTES = 1 << 16

# While other connections wait for memory, a large request has this long to arrive.
ARRIVAL_S, ARRIVAL_BYTES_A_SECOND = 10.0, 4_000_000


class Input(Enum):
    """How the connection handles the bytes that its client sends."""

    READING = "reading"
    PAUSED = "paused"  # It does not read them. The kernel's buffer fills until the client has to stop.
    ENDED = "ended"  # The client sent its last byte, and not all of its requests are answered.


READING, PAUSED, ENDED = Input


class FlowControl(asyncio.BufferedProtocol):
    """`_input` and `_is_writable` (asyncio's flow control) are independent of each other and of `state`.

    `ClientConnection` extends it. As an object of its own it would cost every request another attribute look-up.
    """

    __slots__ = (
        "_counted",
        "_input",
        "_is_writable",
        "_server",
        "_transport",
        "_unsent",
        "inbox",
        "last_active",
        "state",
    )

    _transport: asyncio.Transport

    def __init__(self, server: SocketServer) -> None:
        self.state = READY
        self.inbox = Inbox()
        self.last_active = monotonic()
        self._input = READING
        self._is_writable = True
        self._server = server
        self._counted = 0  # Bytes of the inbox that the server counts as held.
        self._unsent = 0  # Bytes of replies that the server counts as unsent.

    # --- `ClientConnection` does this -------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End the connection once the client has read the answers that were sent."""

    def abort(self, reason: str) -> None:
        """End the connection now."""

    def _schedule(self) -> None:
        """Have the next turn soon, if there is anything to do in it."""

    def _schedule_turn(self) -> None:
        """Have the next turn soon."""

    # --- reading, or not ------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Count the inbox; then read only while the client's requests can be served and held."""
        if self.state is CLOSED:
            return
        server = self._server
        inbox = self.inbox
        more_bytes = inbox.held_bytes - self._counted
        if more_bytes:
            self._counted += more_bytes
            server.hold(more_bytes)
        if self._input is ENDED and self.state is not AWAITING and not inbox.has_request():
            self.close("")
            return
        is_short = server.held_bytes >= server.max_held_bytes
        if self.state is READY and self._is_writable and inbox.has_request():
            # The answer to the request before it came after `_serve` had looked.
            self._schedule_turn()
        unread = inbox.unread_bytes
        if self.state is not READY or not self._is_writable:
            self._read_on(unread < (SMALL_BYTES if is_short else MAX_WAITING_BYTES))
        elif unread >= 4 and not inbox.large_bytes and inbox.begun_bytes > (SMALL_BYTES if is_short else LARGE_BYTES):
            if is_short:
                server.starved[self] = None
                self._read_on(False)
            else:
                self.read_large()
        else:
            self._read_on(True)

    def read_large(self) -> None:
        """Read the rest of the request that has begun; there is memory for all of it."""
        server = self._server
        inbox = self.inbox
        server.starved.pop(self, None)
        inbox.begin_large()
        server.arriving[self] = monotonic() + ARRIVAL_S + inbox.large_bytes / ARRIVAL_BYTES_A_SECOND
        server.hold(inbox.large_bytes - self._counted)
        self._counted = inbox.large_bytes
        self._read_on(True)

    def is_stuck(self, now: float) -> bool:
        """Whether it holds the beginning of a request, could send more, and has not for a while."""
        is_free = self.state is READY and self._is_writable and self._input is READING
        is_part = bool(self.inbox.data) and not self.inbox.large_bytes
        return is_free and is_part and now - self.last_active > ARRIVAL_S

    def _read_on(self, is_wanted: bool) -> None:
        if is_wanted and self._input is PAUSED:
            self._input = READING
            self._transport.resume_reading()
        elif not is_wanted and self._input is READING:
            self._input = PAUSED
            self._transport.pause_reading()

    # --- answers that the client does not read --------------------------------------------------------------

    def pause_writing(self) -> None:
        self._is_writable = False
        if self.state is not CLOSED:
            server = self._server
            server.slow[self] = monotonic()
            self._unsent = self._transport.get_write_buffer_size()
            server.unsent_bytes += self._unsent

    def resume_writing(self) -> None:
        self._is_writable = True
        if self.state is not CLOSED:
            self._note_sent()
            self.last_active = monotonic()
            self._schedule()

    def note_progress(self, now: float) -> None:
        """See whether a slow reader took anything since the last look."""
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._server.unsent_bytes += unsent - self._unsent
            self._unsent = unsent
            self._server.slow[self] = self.last_active = now

    def _note_sent(self) -> None:
        self._server.slow.pop(self, None)
        self._server.unsent_bytes -= self._unsent
        self._unsent = 0

    # --- the end --------------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Give back all memory at once; the transport may take its time."""
        server = self._server
        server.starved.pop(self, None)
        server.arriving.pop(self, None)
        self._note_sent()
        self.inbox.clear()
        counted, self._counted = self._counted, 0
        server.hold(-counted)
