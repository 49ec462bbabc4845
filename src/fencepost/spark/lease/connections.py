"""The connections of the lease service: who is let in, how long a silent peer may stay, frames in and out.

A peer is a stranger from the moment it connects until it has identified itself as a task; a TLS handshake changes
nothing about that. When the limit of connections is reached, the oldest stranger is disconnected, never a task. A new
task beyond the limit is disconnected without an answer, and connects again later. Everything here runs in the event
loop of the service.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, cast

from fencepost.spark.lease.counted import CountedWarnings
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.lease.port import host_port
from fencepost.spark.lease.tls import TlsBytes
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
    """One peer. `task` is None for a stranger; `is_asking` is True until its question is answered.

    tls: None: the connection is not encrypted.
    """

    def __init__(self, owner: Connections, peer: str, tls: TlsBytes | None = None) -> None:
        self.peer = peer
        self.task: TaskAttempt | None = None
        self.is_asking = False
        self._owner = owner
        self._tls = tls
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.add(self)

    def eof_received(self) -> None:
        self._owner.drop(self)  # At once, even if there is something left to send.

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.drop(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        # One for all connections: its bytes are taken out before the loop reads the next connection.
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._owner.buffer[:nbytes]
        try:
            self._received += data if self._tls is None else self._decrypt(data, self._tls)
            while self._transport is not None and not self._transport.is_closing():
                limit = MAX_HELLO_BYTES if self.task is None else MAX_FRAME_BYTES
                message = take_frame(self._received, limit)
                if message is None:
                    return
                self._owner.handle(self, message)
        except ssl.SSLError as e:
            self._owner.warnings.warn("a connection from %s is not encrypted as it should be: %s", self.peer, e)
            self._owner.drop(self)
        except (ValueError, TypeError, LookupError) as e:
            # BadFrame, or a frame with fields of the wrong type.
            if self.task is None:
                self._owner.warnings.warn("%s (no task) is disconnected: %s", self.peer, e)
            else:
                self._owner.warnings.warn("%s (%s) is disconnected: %s", self.peer, self.task, e)
            self._owner.drop(self)

    def _decrypt(self, data: bytearray, tls: TlsBytes) -> bytearray:
        try:
            return tls.decrypt(data)
        finally:
            # Of a handshake, or an alert that tells the peer why it failed.
            self._write(tls.to_send())

    def send(self, message: Mapping[str, object]) -> None:
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._write(frame if self._tls is None else self._tls.encrypt(frame))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        if data:
            self._transport.write(data)
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
        self.buffer = bytearray(BUFFER_BYTES)
        self.warnings = CountedWarnings(log, clock_ms)
        self._listener = listener
        self._limit = limit
        self._clock_ms = clock_ms
        self._lost = lost
        self._tls = tls
        self._strangers: dict[TaskConnection, int] = {}  # Since when, oldest first.

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
        if len(self.open) >= self._limit and not self._make_room():
            self.warnings.warn("a connection from %s is turned away: %d are open", address[0], len(self.open))
            sock.close()
            return
        tls = None if self._tls is None else TlsBytes(self._tls)
        connection = TaskConnection(self, host_port(address[0], address[1]), tls)
        try:
            keep_alive(sock)
            await loop.connect_accepted_socket(lambda: connection, sock)
        except OSError:
            sock.close()  # The peer is gone already: macOS then refuses every option.

    def add(self, connection: TaskConnection) -> None:
        self.open.add(connection)
        self._strangers[connection] = self._clock_ms()

    def _make_room(self) -> bool:
        """Disconnect the oldest stranger. False if every connection belongs to a task."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self.warnings.warn(
            "connections that belong to no task of this micro-batch give way to new ones, first that from %s: "
            "%d are open",
            oldest.peer,
            len(self.open),
        )
        self.drop(oldest)
        return True

    def _pause_for(self, why: OSError) -> float:
        self.warnings.warn(
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
        self._listener.close()
        self.warnings.close()
