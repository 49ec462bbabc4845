"""Lets only those requests of a connection through that its login allows: `machines/auth/login.py` has the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.broker.node import Frame
from fencepost.machines.auth.login import Login

if TYPE_CHECKING:
    from fencepost.server.connection import ClientConnection
    from fencepost.server.listener import Listener

# The largest request of a client that has not logged in.
MAX_LOGIN_BYTES = 1 << 19


class Guard:
    __slots__ = ("_listener", "_login", "_now_ms")

    def __init__(self, listener: Listener, login: Login, now_ms: Callable[[], int]) -> None:
        self._listener = listener
        self._login = login
        self._now_ms = now_ms

    @property
    def max_request_bytes(self) -> int:
        limit = self._listener.max_request_bytes
        return limit if self._login.user is not None else min(limit, MAX_LOGIN_BYTES)

    def handle(self, frame: Frame, connection: ClientConnection, now_ms: int) -> None:
        """Pass the request on, or close the connection."""
        objection = self._login.objection(int.from_bytes(frame[:2], "big", signed=True), self._now_ms())
        if objection:
            connection.close(objection)
        else:
            self._listener.handle(frame, connection, now_ms)
