"""The two ends of a link: one receives the requests of a client, the other one the replies of a broker.

An end cuts the bytes that it receives into frames, which the link passes on to the other end. It stops reading while it
is held, by a delay or because the other end cannot write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from fencepost.faults.fault import REPLY, REQUEST, Fault
from fencepost.protocol.schema import Malformed
from fencepost.protocol.walking import Buffer
from fencepost.tap import rewriting
from fencepost.tap.decoding import DECODED, PRODUCE
from fencepost.tap.frames import BrokenFrame, FrameCutter, Part, Piece, read_head

if TYPE_CHECKING:
    from fencepost.tap.link import Link

WRITE_BUFFER_BYTES = 1 << 20


class _Delay(NamedTuple):
    fault: Fault
    then: Callable[[], None]
    timer: asyncio.TimerHandle


class LinkSide(asyncio.Protocol):
    """One end of a link: what it receives goes to the other end."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.transport: asyncio.Transport | None = None
        self.is_held = False
        self.is_deaf = False  # What comes is dropped.
        self.is_full = False  # Its peer does not read as fast as we write.
        self.has_sent_all = False  # Its peer has closed its sending direction.
        self._has_ended = False
        self._is_paused = False
        self._delay: _Delay | None = None
        self.cutter = FrameCutter(self.wants_whole)

    def wants_whole(self, head: memoryview) -> bool:
        raise NotImplementedError

    def take(self, piece: Piece) -> None:
        raise NotImplementedError

    @property
    def other(self) -> LinkSide:
        return self.link.broker if self is self.link.client else self.link.client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.link.tap.side_opened()

    def data_received(self, data: bytes) -> None:
        if self.is_deaf:
            return
        if self.link.is_opaque:
            self.other.write(memoryview(data))
            return
        if self.is_held:
            self._update_reading()  # Not in connection_made: uvloop begins to read after it.
        self.cutter.feed(data)
        self.run()

    def run(self) -> None:
        """Take everything that has come, up to where the side is held."""
        try:
            while (
                not (self.is_held or self.is_deaf or self.link.is_closed) and (piece := self.cutter.next()) is not None
            ):
                self.take(piece)
        except BrokenFrame as e:
            self.link.fail(str(e))
            return
        if self._has_ended and not self.is_held:
            self.link.close()  # Everything that it received is passed on.
        elif self.has_sent_all and not self.is_held and not self.link.is_closed:
            self.link.end_requests()

    def pass_rest(self) -> None:
        """Pass on what was received, without looking at it."""
        self.other.write(self.cutter.rest())

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self.link.tap.side_closed()
        self.run()

    def write(self, data: Buffer) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    # --- how fast -----------------------------------------------------------------------------------------

    def hold_for(self, fault: Fault, then: Callable[[], None]) -> None:
        """Take nothing more for the time of this delay; call `then` before what follows."""
        self.is_held = True
        self._update_reading()
        timer = asyncio.get_running_loop().call_later(fault.delay_ms / 1000, self._go_on)
        self._delay = _Delay(fault, then, timer)

    def end_delay(self, fault: Fault) -> None:
        """Go on now, if it is this fault that holds the side."""
        if self._delay is not None and self._delay.fault is fault:
            self._delay.timer.cancel()
            self._go_on()

    def _go_on(self) -> None:
        assert self._delay is not None
        then, self._delay = self._delay.then, None
        then()
        self.release()

    def release(self) -> None:
        self.is_held = False
        self._update_reading()
        self.run()

    def pause_writing(self) -> None:
        self.is_full = True
        self.other._update_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        self.other._update_reading()

    def _update_reading(self) -> None:
        pause = self.is_held or self.other.is_full
        if self.transport is None or self.transport.is_closing() or pause == self._is_paused:
            return
        with suppress(RuntimeError):  # It is closing.
            self.transport.pause_reading() if pause else self.transport.resume_reading()
            self._is_paused = pause


class ClientSide(LinkSide):
    """Requests, from the client to the broker."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        link = self.link
        link.client_address = address_text(transport.get_extra_info("peername"))
        # A client of IPv4 at a port of IPv6.
        link.own_host = transport.get_extra_info("sockname")[0].removeprefix("::ffff:")
        link.tap.links.add(link)
        self.is_held = True  # Until the broker is reached.
        link.tap.start_task(link.connect())

    def eof_received(self) -> bool:
        if self.transport is None or self.transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no half-closed connections here.
        self.has_sent_all = True
        self.run()
        return True

    def wants_whole(self, head: memoryview) -> bool:
        api_key, _, _, client_id, _ = read_head(head)
        faults = self.link.tap.faults
        if not faults.is_idle and (
            faults.concerning(api_key, client_id, REQUEST) or faults.concerning(api_key, client_id, REPLY)
        ):
            return True
        return api_key in DECODED and api_key != PRODUCE

    def take(self, piece: Piece) -> None:
        if piece.part in (Part.WHOLE, Part.BEGIN):
            self.link.take_request(piece.data, piece.part is Part.WHOLE)
        else:
            self.link.broker.write(piece.data)


class BrokerSide(LinkSide):
    """Replies, from the broker to the client."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._hider: rewriting.EndpointHider | None = None

    def wants_whole(self, head: memoryview) -> bool:
        return self.link.wants_whole_next()

    def take(self, piece: Piece) -> None:
        if piece.part is Part.WHOLE:
            self.link.take_reply(piece.data)
            return
        if piece.part is Part.BEGIN:
            head = self.link.begin_reply(piece.data).head
            knows = rewriting.knows_addresses(head.api_key, head.version)
            self._hider = rewriting.EndpointHider(head.api_key, head.version) if knows else None
        data: Buffer = piece.data
        if self._hider is not None:
            try:
                data = self._hider.pass_on(piece.data)
            except Malformed as e:
                self._hider = None
                self.link.tap.complain(f"a reply of {self.link.broker_address} is passed on as it is: {e}")
        self.link.client.write(data)
        if piece.part is Part.END:
            self.link.end_reply()


def address_text(address: tuple[str, int] | None) -> str:
    if not address:
        return "a client that has left"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
