"""One client's connection: bytes become frames, frames are answered, answers leave.

No streams and no tasks. Bytes land in a buffer that all connections share, and are cut into frames there: only what
cannot be answered yet is kept. Each frame is answered before the next one of its connection is looked at, as Kafka
does, and answers that are ready together leave in one write. A client that does not read its answers, or asks on
while an answer is due, is not read from. A deep pipeline gets a turn at a time, like everybody else.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, cast

from fencepost.broker.rpcs import KEPT_BYTES, KEPT_KEYS, KEPT_PER_CONNECTION, KEPT_REPLY_BYTES, KeptRpc
from fencepost.machines.log.interface import LogTailUnknown
from fencepost.protocol.schema import Malformed
from fencepost.server.complaints import guess_protocol

if TYPE_CHECKING:
    from fencepost.server.listener import Listener

_LENGTH = struct.Struct(">i")
_length_at = _LENGTH.unpack_from

# A frame above this is read into memory of its own; below, the pieces are put together.
LARGE_BYTES = 1 << 16
# What a connection may hold while there is no memory left for requests.
SMALL_BYTES = 1 << 12
# What a connection may have waiting behind a request that is not answered yet.
MAX_WAITING_BYTES = 1 << 16

# A turn: so many frames or so much time, and then the others.
FRAMES_A_TURN = 256
TURN_S = 0.002
FRAMES_A_LOOK = 8  # At the clock.

# Answers that a connection may have unsent before its next request is looked at.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1 << 15, 1 << 13

# While others wait for memory, a large request has this long to arrive.
ARRIVAL_S, ARRIVAL_BYTES_A_SECOND = 10.0, 4_000_000
# How long a client that is closed may take to read what it was sent before.
CLOSING_S = 5.0

_EMPTY = bytearray()


class Connection(asyncio.BufferedProtocol):
    """One client. `is_waiting` is true while a request of it has no answer yet.

    Unread bytes are `_held[_start:_end]`. While a large frame is read, `_large` is its size, and what is past `_end` is
    room for more of it.
    """

    __slots__ = (
        "_closer",
        "_closing_bytes",
        "_counted",
        "_end",
        "_held",
        "_is_busy",
        "_is_ending",
        "_is_reading",
        "_is_scheduled",
        "_is_silent",
        "_is_writable",
        "_large",
        "_listener",
        "_outbox",
        "_outbox_bytes",
        "_start",
        "_transport",
        "_unsent",
        "host",
        "is_waiting",
        "last_active",
        "port",
        "rpcs",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._held = _EMPTY
        self._start = 0
        self._end = 0
        self._large = 0
        self._counted = 0  # What the listener thinks is held.
        self._unsent = 0  # What the listener thinks is unsent.
        self._closing_bytes = 0  # What it thinks is on its way out.
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._is_busy = False  # Inside `_serve`: answers are gathered and written once at its end.
        self._is_scheduled = False  # The turn was over; the next one is coming.
        self._is_ending = False  # The client has sent its last request, and it is not served yet.
        self._is_reading = True
        self._is_silent = True
        self._is_writable = True
        self._closer: Callable[[], None] | None = None
        self.is_waiting = False
        self.host = ""
        self.port = 0
        self.rpcs: deque[KeptRpc] | None = None
        self.last_active = monotonic()

    @property
    def arriving_bytes(self) -> int:
        """The size of the large request that is being read."""
        return self._large

    # --- what asyncio calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.host, self.port = peer[0], peer[1]
        refusal = self._listener.admit(self)
        if refusal:
            self.abort(refusal)
            return
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._listener.closing_bytes -= self._closing_bytes
        self._closing_bytes = 0
        self._listener.connections.discard(self)
        if self.rpcs is not None:
            self._listener.rpcs_of_gone.append((self.host, self.port, self.rpcs))

    def eof_received(self) -> bool:
        """The client sends no more. What it has sent is served first: with acks=0 it leaves without a word."""
        self._is_ending = self._transport is not None and not self.is_waiting and self._has_request()
        return self._is_ending

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large:
            return memoryview(self._held)[self._end :]
        listener = self._listener
        return listener.view if listener.held_bytes < listener.max_held_bytes else listener.small_view

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        listener = self._listener
        self.last_active = monotonic()
        held = self._held
        if not held:
            if self.is_waiting or self._is_scheduled or not self._is_writable:
                pos = 0
            else:
                pos = self._serve(listener.scratch, listener.view, 0, nbytes)
            if pos < nbytes and self._transport is not None:
                self._held = bytearray(listener.view[pos:nbytes])
                self._end = nbytes - pos
                self._settle()
            elif not self._is_reading:
                self._settle()
            return
        self._end += nbytes
        if not self._large:
            held += listener.view[:nbytes]
        elif self._end < self._large:
            if self._end == len(held):
                self._make_room()
            return
        else:
            self._large = 0
            listener.arriving.pop(self, None)
        self._go_on()

    def pause_writing(self) -> None:
        self._is_writable = False
        listener, transport = self._listener, self._transport
        if transport is not None:
            listener.slow[self] = monotonic()
            self._unsent = transport.get_write_buffer_size()
            listener.unsent_bytes += self._unsent

    def resume_writing(self) -> None:
        if self._transport is None:
            return
        self._is_writable = True
        self._note_sent()
        self.last_active = monotonic()
        self._schedule()

    # --- what the broker calls ----------------------------------------------------------------------------

    def reply(self, parts: list[bytes]) -> None:
        if self._transport is None:
            return  # The client is gone.
        self.is_waiting = False
        self._closer = None
        if parts:
            self._outbox += parts
            self._outbox_bytes += len(parts[-1]) if len(parts) == 2 else sum(map(len, parts))
        if not self._is_busy:
            if self.rpcs and parts and self.rpcs[-1][2] is None:
                self.rpcs[-1] = (*self.rpcs[-1][:2], parts[-1][:KEPT_REPLY_BYTES], time.time_ns())
            # An answer that was waited for. What the client asked meanwhile gets its own turn: this may be
            # in the middle of somebody else's request.
            self._flush()
            self._schedule()

    def close(self, reason: str) -> None:
        """End the connection once the client has read what it was sent, which it has a while to do."""
        transport = self._transport
        if transport is None:
            return
        self._complain(reason)
        self._flush()
        self._forget()
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSING_S, transport.abort)

    def abort(self, reason: str) -> None:
        """End the connection now."""
        transport = self._transport
        if transport is None:
            return
        self._complain(reason)
        self._forget()
        # The memory is free only when the loop gets round to it; until then nobody gets another large answer.
        self._closing_bytes = transport.get_write_buffer_size()
        self._listener.closing_bytes += self._closing_bytes
        transport.abort()

    def on_close(self, action: Callable[[], None]) -> None:
        self._closer = action

    # --- cutting and answering ----------------------------------------------------------------------------

    def _serve(self, buffer: bytearray, view: memoryview, pos: int, end: int) -> int:
        """Answer the whole frames in the buffer, up to one that has to wait; return where the rest begins."""
        listener = self._listener
        handle = listener.handle
        limit = listener.max_request_bytes
        now_ms = time.time_ns() // 1_000_000
        begin = pos
        frames_left = FRAMES_A_TURN
        self._is_busy = True
        try:
            while end - pos >= 4:
                (size,) = _length_at(buffer, pos)
                if not 0 <= size <= limit:
                    raise Malformed(_explain_size(size, limit, view[pos:end]))
                after = pos + 4 + size
                if after > end:
                    break
                if not frames_left % FRAMES_A_LOOK and (
                    frames_left == 0
                    or (frames_left < FRAMES_A_TURN and monotonic() - self.last_active > TURN_S)
                    or listener.closing_bytes > listener.max_unsent_bytes
                ):
                    self._schedule()
                    break
                frames_left -= 1
                frame = bytes(view[pos + 4 : after])
                pos = after
                self.is_waiting = True
                handle(frame, self, now_ms)
                if frame[:2] in KEPT_KEYS:
                    self._keep_rpc(now_ms, frame)
                if self.is_waiting:
                    break  # Also when the connection is closed.
                if self._outbox_bytes >= WRITE_HIGH_BYTES:
                    self._flush()
                    if not self._is_writable:
                        break
        except Malformed as e:
            self.close(f"malformed request: {e}")
        except LogTailUnknown as e:
            listener.die(e)
        except Exception as e:  # A bug must cost its connection, not the broker.
            listener.complaints.bug(e)
            self.abort(f"the request could not be served: {type(e).__name__}: {e}")
        finally:
            self._is_busy = False
        if self._transport is None:
            return end
        if self._is_silent and pos > begin:
            self._is_silent = False
            listener.silent.pop(self, None)
        self._flush()
        listener.after_work()
        return pos

    def _keep_rpc(self, now_ms: int, frame: bytes) -> None:
        """Remember the request that was just handled, for whoever asks later; see `broker/rpcs.py`."""
        if self.rpcs is None:
            self.rpcs = deque(maxlen=KEPT_PER_CONNECTION)
        reply = None if self.is_waiting or not self._outbox else self._outbox[-1][:KEPT_REPLY_BYTES]
        self.rpcs.append((now_ms, frame if len(frame) <= KEPT_BYTES else frame[:KEPT_BYTES], reply, time.time_ns()))

    def _go_on(self) -> None:
        """Serve what is held, if the connection's turn has come."""
        held = self._held
        if not (self._large or self.is_waiting or self._is_scheduled or not self._is_writable):
            with memoryview(held) as view:
                pos = self._serve(held, view, self._start, self._end)
            if self._transport is None:
                return
            if pos == self._end:
                self._held = _EMPTY
                self._start = self._end = 0
            elif pos > MAX_WAITING_BYTES:
                # What was read is cut off rarely, so that the rest is not moved for each frame.
                del held[:pos]
                self._start = 0
                self._end -= pos
            else:
                self._start = pos
        self._settle()

    def _schedule(self) -> None:
        """Have the next turn soon, if there is anything to do in it."""
        if not self._is_scheduled and (self._held or self._is_busy or not self._is_reading or self._is_ending):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        if self._transport is not None:
            self.last_active = monotonic()
            self._go_on()

    def _flush(self) -> None:
        outbox = self._outbox
        if not outbox or self._transport is None:
            return
        self._outbox = []
        size, self._outbox_bytes = self._outbox_bytes, 0
        if len(outbox) == 1:
            self._transport.write(outbox[0])
        elif size <= WRITE_HIGH_BYTES:
            self._transport.write(b"".join(outbox))
        else:
            self._transport.writelines(outbox)
        if not self._is_writable and self._listener.unsent_bytes > 2 * self._listener.max_unsent_bytes:
            self.abort(f"{self._listener.unsent_bytes} bytes of answers are unsent already, to it and to others")

    # --- reading on, or not -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Read on only while the client's requests can be served and held."""
        listener = self._listener
        held = self._held
        more_bytes = (self._large or len(held)) - self._counted
        if more_bytes:
            self._counted += more_bytes
            listener.hold(more_bytes)
        if self._is_ending and not self.is_waiting and not self._has_request():
            self.close("")
            return
        unread = self._end - self._start
        is_short = listener.held_bytes >= listener.max_held_bytes
        if self.is_waiting or self._is_scheduled or not self._is_writable:
            self._read_on(unread < (SMALL_BYTES if is_short else MAX_WAITING_BYTES))
            return
        if unread >= 4 and not self._large:
            # A frame that is not whole, or it would have been served.
            size = self.begun_bytes
            if size > (SMALL_BYTES if is_short else LARGE_BYTES):
                if is_short:
                    listener.starved[self] = None
                    self._read_on(False)
                else:
                    self.read_large()
                return
        self._read_on(True)

    def _has_request(self) -> bool:
        """Whether one is held that is whole."""
        unread = self._end - self._start
        return not self._large and unread >= 4 and unread >= self.begun_bytes

    @property
    def begun_bytes(self) -> int:
        """The size of the request that is held in part."""
        return 4 + int(_length_at(self._held, self._start)[0])

    def is_stuck(self, now: float) -> bool:
        """Whether it holds the beginning of a request, could send more, and has not for a while."""
        is_free = not (self.is_waiting or self._is_scheduled) and self._is_writable and self._is_reading
        return bool(self._held) and is_free and not self._large and now - self.last_active > ARRIVAL_S

    def read_large(self) -> None:
        """There is memory for all of the frame that has begun: read the rest of it right into its place."""
        listener = self._listener
        listener.starved.pop(self, None)
        self._large = self.begun_bytes
        listener.arriving[self] = monotonic() + ARRIVAL_S + self._large / ARRIVAL_BYTES_A_SECOND
        listener.hold(self._large - self._counted)
        self._counted = self._large
        self._make_room()
        self._read_on(True)

    def _make_room(self) -> None:
        """Room for four times what has come, so that a size which is only claimed costs nothing."""
        unread = self._end - self._start
        room = bytearray(min(self._large, max(4 * unread, SMALL_BYTES)))
        room[:unread] = memoryview(self._held)[self._start : self._end]
        self._held = room
        self._start, self._end = 0, unread

    def _read_on(self, is_reading: bool) -> None:
        if is_reading != self._is_reading and self._transport is not None and not self._is_ending:
            self._is_reading = is_reading
            if is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def note_progress(self, now: float) -> None:
        """See whether a slow reader took anything since the last look."""
        if self._transport is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent != self._unsent:
                self._listener.unsent_bytes += unsent - self._unsent
                self._unsent = unsent
                self._listener.slow[self] = self.last_active = now

    def _note_sent(self) -> None:
        self._listener.slow.pop(self, None)
        self._listener.unsent_bytes -= self._unsent
        self._unsent = 0

    # --- the end ------------------------------------------------------------------------------------------

    def _complain(self, reason: str) -> None:
        if reason:
            self._listener.complaints.line(f"closed {self.host}:{self.port}: {reason}")

    def _forget(self) -> None:
        """Give back everything at once; the transport may take its time."""
        if self._transport is None:
            return
        self._transport = None
        self.is_waiting = True  # Nothing will be served any more.
        listener = self._listener
        listener.silent.pop(self, None)
        listener.starved.pop(self, None)
        listener.arriving.pop(self, None)
        self._note_sent()
        self._held = _EMPTY
        self._start = self._end = self._large = 0
        counted, self._counted = self._counted, 0
        listener.hold(-counted)
        self._outbox.clear()
        closer, self._closer = self._closer, None
        if closer is not None:
            closer()


def _explain_size(size: int, limit: int, head: memoryview) -> str:
    text = f"a request claims {size} bytes, socket.request.max.bytes is {limit}"
    protocol = guess_protocol(bytes(head[:8]))
    return f"{text}; it looks like {protocol}, and this port speaks Kafka without {protocol}" if protocol else text
