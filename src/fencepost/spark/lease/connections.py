"""The connections of the lease service: who is let in, how long a silent peer may stay, frames in and out.

A peer is a stranger until it has identified itself as a task. When the limit of connections is reached, the oldest
stranger is disconnected, never a task. A new task beyond the limit is disconnected without an answer, and connects
again later. Everything here runs in the event loop of the service.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, cast

from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.lease.port import host_port
from fencepost.spark.lease.wire import MAX_FRAME_BYTES, encode_frame, keep_alive, take_frame

log = logging.getLogger(__name__)

MAX_HELLO_BYTES = 4096
HELLO_TIMEOUT_MS = 10_000
MAX_UNSENT_BYTES = 1 << 20
BUFFER_BYTES = 1 << 16
# The pause before the next accept when the driver has no file descriptor left.
ACCEPT_PAUSE_S = 0.2
NO_FILE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TaskConnection(asyncio.BufferedProtocol):
    """One peer. `task` is None for a stranger; `is_asking` is True until its question is answered."""

    def __init__(self, owner: Connections, peer: str) -> None:
        self.peer = peer
        self.task: TaskAttempt | None = None
        self.is_asking = False
        self._owner = owner
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.add(self)

    def eof_received(self) -> None:
        self._owner.drop(self)  # At once, even if there is something left to send.

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.drop(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        # One for all connections: its bytes are taken out before the loop reads the next connection. A view, because
        # with TLS the loop fills it in slices, and a slice of a bytearray is a copy.
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._owner.buffer[:nbytes]
        try:
            while self._transport is not None and not self._transport.is_closing():
                limit = MAX_HELLO_BYTES if self.task is None else MAX_FRAME_BYTES
                message = take_frame(self._received, limit)
                if message is None:
                    return
                self._owner.handle(self, message)
        except (ValueError, TypeError, LookupError) as e:
            # BadFrame, or a frame with fields of the wrong type.
            log.warning("%s (%s) is disconnected: %s", self.peer, self.task or "no task", e)
            self._owner.drop(self)

    def send(self, message: Mapping[str, object]) -> None:
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._owner.drop(self)

    def close(self) -> None:
        """Close as soon as everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Connections:
    """All open connections of one listening socket.

    handle: called with each frame. lost: called once for each task whose connection has ended.
    """

    def __init__(
        self,
        listener: socket.socket,
        limit: int,
        clock_ms: Callable[[], int],
        handle: Callable[[TaskConnection, Mapping[str, Any]], None],
        lost: Callable[[TaskConnection, TaskAttempt], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.open: set[TaskConnection] = set()
        self.handle = handle
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self._listener = listener
        self._limit = limit
        self._clock_ms = clock_ms
        self._lost = lost
        self._tls = tls
        self._handshakes: set[asyncio.Task[None]] = set()
        self._strangers: dict[TaskConnection, int] = {}  # Since when, oldest first.
        self._warned: set[str] = set()

    # --- accepting ------------------------------------------------------------------------------------------

    async def accept(self) -> None:
        """Wait for a connection, and let it in or turn it away."""
        loop = asyncio.get_running_loop()
        try:
            sock, address = await loop.sock_accept(self._listener)
        except OSError as e:
            # A connection that is dropped gives its file back in the next turn of the loop.
            await asyncio.sleep(0 if e.errno not in NO_FILE_LEFT or self._make_room() else self._pause_for(e))
            return
        if len(self.open) + len(self._handshakes) >= self._limit and not self._make_room():
            log.warning("a connection from %s is turned away: %d are open", address[0], len(self.open))
            sock.close()
            return
        letting_in = self._let_in(sock, host_port(address[0], address[1]))
        if self._tls is None:
            await letting_in
            return
        # A peer may take its time for a handshake, and others must not wait for it.
        handshake = asyncio.create_task(letting_in)
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _let_in(self, sock: socket.socket, peer: str) -> None:
        connection = TaskConnection(self, peer)
        timeout_s = None if self._tls is None else HELLO_TIMEOUT_MS / 1000
        try:
            keep_alive(sock)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, sock, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as e:
            # The peer is gone already (macOS then refuses every option), or speaks no TLS.
            if self._tls is not None:
                self.warn_once("a connection from %s is not encrypted as it should be: %s", peer, e)
            sock.close()

    def add(self, connection: TaskConnection) -> None:
        self.open.add(connection)
        self._strangers[connection] = self._clock_ms()

    def _make_room(self) -> bool:
        """Disconnect the oldest stranger. False if every connection belongs to a task."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self.warn_once(
            "connections that belong to no task of this micro-batch give way to new ones, first that from %s: "
            "%d are open",
            oldest.peer,
            len(self.open),
        )
        self.drop(oldest)
        return True

    def _pause_for(self, why: OSError) -> float:
        self.warn_once(
            "tasks have to wait for a connection to the lease service: %s, with %d connections\n\n"
            "hint: raise the limit of open files (ulimit -n) of the driver",
            why.strerror,
            len(self.open),
        )
        return ACCEPT_PAUSE_S

    # --- while they are open --------------------------------------------------------------------------------

    def admit(self, connection: TaskConnection, task: TaskAttempt) -> None:
        """The peer has said which task it is."""
        connection.task = task
        del self._strangers[connection]

    def dismiss(self, connection: TaskConnection) -> None:
        """Close the connection once everything is sent, or when its time as a stranger is up."""
        connection.task = None
        self._strangers.pop(connection, None)
        self._strangers[connection] = self._clock_ms()
        connection.close()

    def drop(self, connection: TaskConnection) -> None:
        """Close the connection at once."""
        self.open.discard(connection)
        self._strangers.pop(connection, None)
        connection.abort()
        task, connection.task = connection.task, None
        if task is not None:
            self._lost(connection, task)

    def drop_silent(self) -> None:
        """Disconnect the strangers whose time is up."""
        now_ms = self._clock_ms()
        for connection, since_ms in list(self._strangers.items()):
            if now_ms - since_ms > HELLO_TIMEOUT_MS:
                self.drop(connection)

    def close(self) -> None:
        for connection in list(self.open):
            self.drop(connection)
        for handshake in self._handshakes:
            handshake.cancel()
        self._listener.close()

    # --- warnings -------------------------------------------------------------------------------------------

    def warn_once(self, text: str, *values: object) -> None:
        """Once in a micro-batch, because a peer may cause the same warning any number of times."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning(text, *values)

    def forget_warnings(self) -> None:
        self._warned.clear()
