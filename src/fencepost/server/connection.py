"""One client's connection: bytes become frames, the broker answers frames, answers leave.

There are no streams and no tasks. Bytes land in a buffer that all connections share and are cut into frames there;
`Inbox` keeps only the bytes that cannot be served yet. As in Kafka, each frame is answered before the next one of its
connection is handled, and answers that are ready together leave in one write. A client with many requests in flight
gets one turn at a time, so that the others are served in between. `flow_control.py` says when to stop reading.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, cast

from fencepost.broker.node import ANONYMOUS
from fencepost.broker.rpcs import KEPT_BYTES, KEPT_KEYS, KEPT_PER_CONNECTION, KEPT_REPLY_BYTES, KeptRpc
from fencepost.machines.acl.acls import canonical_host
from fencepost.machines.log.interface import LogTailUnknown
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Malformed
from fencepost.server.complaints import guess_protocol
from fencepost.server.flow_control import (
    ANSWERED,
    AWAITING,
    CLOSED,
    ENDED,
    HANDLING,
    READING,
    READY,
    SCHEDULED,
    FlowControl,
)
from fencepost.server.inbox import length_at

if TYPE_CHECKING:
    from fencepost.machines.auth.login import Login
    from fencepost.server.listeners import Guard
    from fencepost.server.socket_server import SocketServer

# A turn ends after this many frames or this much time.
FRAMES_A_TURN = 256
TURN_S = 0.002
FRAMES_A_LOOK = 8  # Frames handled between two looks at the clock.

# Answers that a connection may have unsent before its next request is handled.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1 << 15, 1 << 13

# How long a client may take to read its last answers after the broker closed the connection.
CLOSING_S = 5.0


class ClientConnection(FlowControl):
    """One client. `state` moves as in MOVES (`flow_control.py`).

    `_keep_rpc` is here because it needs the answer that has not left yet; `broker/rpcs.py` says what is kept.
    """

    __slots__ = (
        "_closer",
        "_closing_bytes",
        "_outbox",
        "_outbox_bytes",
        "_reads_little",
        "guard",
        "has_entered",
        "host",
        "listener_name",
        "login",
        "port",
        "principal",
        "rpcs",
        "sends_in_place",
    )

    def __init__(self, server: SocketServer) -> None:
        super().__init__(server)
        self.host = ""
        self.port = 0
        self.listener_name = ""
        self.principal = ANONYMOUS
        self.login: Login | None = None
        self.guard: Guard | None = None  # Of a listener that asks for a login.
        self.has_entered = True  # No TLS handshake and no login are left to do.
        self.rpcs: deque[KeptRpc] | None = None
        self.sends_in_place = False
        self._closing_bytes = 0  # Bytes that the server counts as still to be sent before the close.
        self._outbox: list[Part] = []
        self._outbox_bytes = 0
        self._reads_little = False  # The last request was large, so the next may be: its beginning is copied.
        self._closer: Callable[[], None] | None = None

    # --- called by asyncio --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.host, self.port = canonical_host(peer[0]), peer[1]
        refusal = self._server.admit(self)
        if refusal:
            self.abort(refusal)
            return
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        # asyncio's own transports copy what the kernel does not take at once, and TLS encrypts.
        self.sends_in_place = type(transport).__module__ == "uvloop.loop"

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._server.closing_bytes -= self._closing_bytes
        self._closing_bytes = 0
        self._server.leave(self)

    def eof_received(self) -> bool:
        """Keep the connection open until the requests before the end are served: with acks=0 a client leaves early."""
        if self.state in (READY, SCHEDULED) and self.inbox.has_request():
            self._input = ENDED
        return self._input is ENDED

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.inbox.large_bytes:
            return self.inbox.room()
        server = self._server
        if self._reads_little or server.held_bytes >= server.max_held_bytes:
            return server.small_view
        return server.view

    def buffer_updated(self, nbytes: int) -> None:
        if self.state is CLOSED:
            return
        server = self._server
        inbox = self.inbox
        self.last_active = monotonic()
        if not inbox.data:
            pos = 0
            if self.state is READY and self._is_writable:
                pos = self._serve(server.scratch, server.view, 0, nbytes)
            if pos < nbytes:
                inbox.append(server.view[pos:nbytes])
                self._settle()
            elif self._input is not READING:
                self._settle()
        elif not inbox.large_bytes:
            inbox.append(server.view[:nbytes])
            self._serve_inbox()
        elif inbox.fill(nbytes):
            server.arriving.pop(self, None)
            self._serve_large()

    # --- called by the broker -----------------------------------------------------------------------------

    def reply(self, parts: list[Part]) -> None:
        state = self.state
        if state is CLOSED:
            return
        self._closer = None
        if parts:
            self._outbox += parts
            self._outbox_bytes += len(parts[-1]) if len(parts) == 2 else sum(map(len, parts))
        if state is HANDLING:
            self.state = ANSWERED
            return
        assert state is AWAITING, f"an answer without a request: the connection is {state.value}"
        self.state = READY
        if self.rpcs and self.rpcs[-1][2] is None:
            self.rpcs[-1] = (*self.rpcs[-1][:2], _beginning_of_last(parts), time.time_ns())
        self._flush()
        # The requests in the inbox get a turn of their own: this call may come from the handling of another client's.
        self._schedule()

    def close(self, reason: str) -> None:
        """End the connection once the client has read the answers that were sent; it has `CLOSING_S` for that."""
        if self.state is CLOSED:
            return
        self._complain(reason)
        self._flush()
        self._end()
        transport = self._transport
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSING_S, transport.abort)

    def abort(self, reason: str) -> None:
        """End the connection now."""
        if self.state is CLOSED:
            return
        self._complain(reason)
        self._end()
        # The event loop frees this memory later; until then no connection gets another large answer.
        self._closing_bytes = self._transport.get_write_buffer_size()
        self._server.closing_bytes += self._closing_bytes
        self._transport.abort()

    def enter(self, principal: str) -> None:
        """The TLS handshake and the login, as far as the listener asks for them, are done."""
        self.principal = principal
        self.has_entered = True
        self._server.entering.pop(self, None)
        if self._server.debug is not None:
            self._server.debug(f"{self.host}:{self.port} is {principal}")

    def on_close(self, action: Callable[[], None]) -> None:
        self._closer = action

    # --- handling and answering ---------------------------------------------------------------------------

    def _serve(self, buffer: bytearray, view: memoryview, pos: int, end: int) -> int:
        """Handle the complete frames in the buffer, up to one that has to wait; return where the rest begins."""
        server = self._server
        if self.guard is None:
            handle, limit = server.handle, server.max_request_bytes
        else:
            handle, limit = self.guard.handle, self.guard.max_request_bytes
        now_ms = time.time_ns() // 1_000_000
        begin = pos
        self._reads_little = False
        frames_left = FRAMES_A_TURN
        is_turn_over = False
        try:
            while end - pos >= 4:
                (size,) = length_at(buffer, pos)
                if not 0 <= size <= limit:
                    raise Malformed(_explain_size(size, limit, view[pos:end]))
                after = pos + 4 + size
                if after > end:
                    break
                if not frames_left % FRAMES_A_LOOK and (
                    frames_left == 0
                    or (frames_left < FRAMES_A_TURN and monotonic() - self.last_active > TURN_S)
                    or server.closing_bytes > server.max_unsent_bytes
                ):
                    is_turn_over = True
                    break
                frames_left -= 1
                frame = bytes(view[pos + 4 : after])
                pos = after
                self.state = HANDLING
                parts_before = len(self._outbox)
                handle(frame, self, now_ms)
                if frame[:2] in KEPT_KEYS:
                    self._keep_rpc(now_ms, frame, parts_before)
                if self.state is not ANSWERED:
                    break
                if self._outbox_bytes >= WRITE_HIGH_BYTES:
                    self._flush()
                    if not self._is_writable:
                        break
        except Exception as e:
            self._give_up(e)
        self._end_turn(pos > begin, is_turn_over)
        return pos if self.state is not CLOSED else end

    def _give_up(self, error: Exception) -> None:
        """A request could not be handled. A bug must cost its connection, not the broker."""
        if isinstance(error, Malformed):
            self.close(f"malformed request: {error}")
        elif isinstance(error, LogTailUnknown):
            self._server.die(error)
        else:
            self._server.complaints.bug(error)
            self.abort(f"the request could not be served: {type(error).__name__}: {error}")

    def _end_turn(self, has_handled: bool, is_turn_over: bool = False) -> None:
        server = self._server
        state = self.state
        if state is ANSWERED:
            self.state = READY
        elif state is HANDLING:
            self.state = AWAITING
        elif state is CLOSED:
            return
        if has_handled and server.silent:
            server.silent.pop(self, None)
        self._flush()
        if is_turn_over:
            self._schedule_turn()
        server.after_work()

    def _serve_large(self) -> None:
        """Handle the large request that is complete now, in the memory that it arrived in."""
        if self.state is not READY or not self._is_writable:
            self._settle()
            return
        self._reads_little = True
        frame = self.inbox.take_large()
        # The broker may change the frame.
        kept = bytes(frame[:KEPT_BYTES]) if bytes(frame[:2]) in KEPT_KEYS else None
        now_ms = time.time_ns() // 1_000_000
        self.state = HANDLING
        parts_before = len(self._outbox)
        try:
            (self.guard or self._server).handle(frame, self, now_ms)
            if kept is not None:
                self._keep_rpc(now_ms, kept, parts_before)
        except Exception as e:
            self._give_up(e)
        self._end_turn(True)
        self._settle()

    def _keep_rpc(self, now_ms: int, frame: bytes, parts_before: int) -> None:
        """Remember the request that was just handled, for `fencepost txn history --rpc`; see `broker/rpcs.py`.

        `parts_before` is the number of parts in the outbox before the request was handled: those are other answers.
        """
        if self.rpcs is None:
            self.rpcs = deque(maxlen=KEPT_PER_CONNECTION)
        reply = _beginning_of_last(self._outbox[parts_before:]) if self.state is ANSWERED else None
        self.rpcs.append((now_ms, frame if len(frame) <= KEPT_BYTES else frame[:KEPT_BYTES], reply, time.time_ns()))

    def _serve_inbox(self) -> None:
        """Handle the requests in the inbox, if the connection may."""
        inbox = self.inbox
        if self.state is READY and self._is_writable and not inbox.large_bytes:
            with memoryview(inbox.data) as view:
                pos = self._serve(inbox.data, view, inbox.start, inbox.end)
            if self.state is CLOSED:
                return
            inbox.read_to(pos)
        self._settle()

    def _schedule(self) -> None:
        """Have the next turn soon, if there is anything to do in it."""
        if self.state is READY and (self.inbox.data or self._input is not READING):
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if self.state is READY:
            self.state = SCHEDULED
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self.state is SCHEDULED:
            self.state = READY
            self.last_active = monotonic()
            self._serve_inbox()

    def _flush(self) -> None:
        outbox = self._outbox
        if not outbox:
            return
        self._outbox = []
        size, self._outbox_bytes = self._outbox_bytes, 0
        if len(outbox) == 1:
            self._transport.write(outbox[0])
        elif size <= WRITE_HIGH_BYTES:
            self._transport.write(b"".join(outbox))
        else:
            self._transport.writelines(outbox)
        if not self._is_writable and self._server.unsent_bytes > 2 * self._server.max_unsent_bytes:
            self.abort(f"{self._server.unsent_bytes} bytes of answers are unsent already, to it and to others")

    # --- the end ------------------------------------------------------------------------------------------

    def _complain(self, reason: str) -> None:
        if reason:
            self._server.complaints.line(f"closed {self.host}:{self.port}: {reason}")

    def _end(self) -> None:
        if self.state is CLOSED:
            return
        self.state = CLOSED
        self._server.silent.pop(self, None)
        self._server.entering.pop(self, None)
        self._give_back()
        self._outbox.clear()
        closer, self._closer = self._closer, None
        if closer is not None:
            closer()


def _beginning_of_last(parts: list[Part]) -> bytes:
    """What is kept of an answer; nothing of one that has no parts (Produce with acks=0)."""
    return bytes(parts[-1][:KEPT_REPLY_BYTES]) if parts else b""


def _explain_size(size: int, limit: int, head: memoryview) -> str:
    text = f"a request claims {size} bytes, socket.request.max.bytes is {limit}"
    protocol = guess_protocol(bytes(head[:8]))
    return f"{text}; it looks like {protocol}, and this port speaks Kafka without {protocol}" if protocol else text
