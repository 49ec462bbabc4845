"""Faults on the connections of a broker, for tests; `fencepost.faults` has the words for them.

`Faults` replaces `Listener.handle` only while there is a fault or a moved clock, so that a broker without them loses no
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from fencepost.broker.acls import NODE
from fencepost.broker.node import Frame
from fencepost.faults.errors_in_replies import client_id_of, is_answered, refusal, stamped
from fencepost.faults.fault import DELAY, DISCONNECT, DROP, ERROR, REPLY, REQUEST, Fault, FaultTable
from fencepost.protocol.batch import Part
from fencepost.server.connection import ClientConnection
from fencepost.server.socket_server import Handle, SocketServer

# `duplicate` needs a proxy in front of the broker.
POSSIBLE = (ERROR, DELAY, DROP, DISCONNECT)


class Faults:
    """The faults of one broker process, and how far its clock is ahead."""

    def __init__(self, socket_servers: Iterable[SocketServer], now_ms: Callable[[], int]) -> None:
        self.ahead_ms = 0
        self._now_ms = now_ms
        self._normal: dict[SocketServer, Handle] = {
            socket_server: socket_server.handle for socket_server in socket_servers
        }
        self._table = FaultTable()

    def add(self, fault: Fault) -> int:
        """Set the fault; return its number."""
        number = self._table.add(fault)
        self._take_place()
        return number

    def hits(self, number: int) -> int:
        return self._table.hits(number)

    def remove(self, number: int) -> None:
        """End the fault, and close connections that it left without an answer, so that their clients reconnect soon."""
        for connection in self._table.remove(number):
            connection.close("")
        self._take_place()

    def clear(self) -> None:
        for number in self._table.numbers():
            self.remove(number)

    def advance_clock(self, by_ms: int) -> None:
        self.ahead_ms += by_ms
        self._take_place()

    def _take_place(self) -> None:
        is_idle = not self.ahead_ms and self._table.is_idle
        for socket_server, normal in self._normal.items():
            socket_server.handle = normal if is_idle else _Interference(self, socket_server, normal).handle

    def concerning(self, frame: Frame, client_id: str, at: str, connection: ClientConnection) -> list[Fault]:
        """The faults of a request or its reply. Nodes are no clients: only a fault that names them strikes them."""
        found = self._table.concerning(int.from_bytes(frame[:2], "big"), client_id, at)
        return [fault for fault in found if fault.client_id is not None] if connection.principal == NODE else found

    def strikes(self, fault: Fault) -> bool:
        """Whether the fault strikes now. After the last time, `Listener.handle` is restored."""
        is_struck = fault.strikes()
        if is_struck and fault.is_over:
            self._take_place()
        return is_struck

    def now_ms(self) -> int:
        return self._now_ms() + self.ahead_ms


class _Interference:
    """Takes requests from a socket server, applies faults, and passes the rest to the broker."""

    def __init__(self, faults: Faults, socket_server: SocketServer, normal: Handle) -> None:
        self._faults = faults
        self._socket_server = socket_server
        self._normal = normal

    def handle(self, frame: Frame, connection: ClientConnection, now_ms: int) -> None:
        client_id = client_id_of(frame)
        for fault in self._faults.concerning(frame, client_id, REQUEST, connection):
            if self._strikes_request(fault, frame, connection):
                return
        target: Any = connection
        if self._faults.concerning(frame, client_id, REPLY, connection):
            target = _Gate(self._faults, frame, client_id, connection)
        self._normal(frame, target, now_ms + self._faults.ahead_ms)

    def _strikes_request(self, fault: Fault, frame: Frame, connection: ClientConnection) -> bool:
        parts: list[bytes] | None = []
        if fault.action == ERROR and is_answered(frame):
            parts = refusal(frame, fault.error_code)
            if parts is None:
                return False  # This version of the API has no place for an error.
        if not self._faults.strikes(fault):
            return False
        if fault.action == ERROR:
            connection.reply([*(parts or ())])
        elif fault.action == DELAY:
            asyncio.get_running_loop().call_later(fault.delay_ms / 1000, self._handle_late, frame, connection)
        else:
            _end_without_answer(fault, connection)
        return True

    def _handle_late(self, frame: Frame, connection: ClientConnection) -> None:
        self._socket_server.handle_late(self._normal, frame, connection, self._faults.now_ms())


class _Gate:
    """A connection, for one request, whose reply may not reach the client. The rest is delegated to the connection."""

    __slots__ = ("_client_id", "_connection", "_faults", "_frame")

    sends_in_place = False  # A fault may change the answer.

    def __init__(self, faults: Faults, frame: Frame, client_id: str, connection: ClientConnection) -> None:
        self._faults = faults
        self._frame = frame
        self._client_id = client_id
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def reply(self, parts: list[Part]) -> None:
        connection = self._connection
        for fault in self._faults.concerning(self._frame, self._client_id, REPLY, connection):
            changed = stamped(self._frame, parts, fault.error_code) if fault.action == ERROR else []
            if changed is None or not self._faults.strikes(fault):
                continue
            if fault.action == ERROR:
                connection.reply([*changed])
            elif fault.action == DELAY:
                asyncio.get_running_loop().call_later(fault.delay_ms / 1000, connection.reply, parts)
            else:
                _end_without_answer(fault, connection)
            return
        connection.reply(parts)


def _end_without_answer(fault: Fault, connection: ClientConnection) -> None:
    connection.on_close(lambda: None)  # The request has been carried out, so there is nothing to cancel.
    if fault.action == DISCONNECT:
        connection.close("")
    else:
        # A connection is served in order, so its client receives nothing more until it connects again.
        fault.hanging.append(connection)
