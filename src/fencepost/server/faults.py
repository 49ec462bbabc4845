"""Faults on demand, for tests: an error, a delay, no answer or a broken connection for the next requests of an API.

A fault strikes at the request, before the broker sees it, or at the reply, when the broker has carried out the request
and the client does not know it. `Faults` replaces `Listener.handle` only while there is a fault or a moved clock, so a
broker without them loses no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from fencepost.broker.api import APIS
from fencepost.broker.node import Frame
from fencepost.protocol import errors
from fencepost.server.connection import ClientConnection
from fencepost.server.listener import Handle, Listener
from fencepost.server.refusals import can_carry_error, client_id_of, is_answered, refusal, stamped

ERROR, DELAY, DROP, DISCONNECT = ACTIONS = ("error", "delay", "drop", "disconnect")
REQUEST, REPLY = MOMENTS = ("request", "reply")


class BadFault(ValueError):
    """The test asked for an impossible fault. The message says what to ask for instead."""


@dataclass(slots=True, eq=False)
class Fault:
    """The effect, the requests that it hits, and how often. None: all APIs, all clients, until the fault is removed."""

    action: str
    at: str
    api_key: int | None = None
    client_id: str | None = None  # A glob pattern: `svc-*`.
    times_left: int | None = None
    skip: int = 0
    error_code: int = 0
    delay_ms: int = 0
    hits: int = 0
    hanging: list[ClientConnection] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.times_left == 0

    def concerns(self, api_key: int, client_id: str) -> bool:
        return (
            not self.is_over
            and self.api_key in (None, api_key)
            and (self.client_id is None or fnmatchcase(client_id, self.client_id))
        )

    def strikes(self) -> bool:
        """Whether the fault strikes this request, which concerns it; counts the request."""
        if self.is_over:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times_left is not None:
            self.times_left -= 1
        self.hits += 1
        return True


class Faults:
    """The faults of one broker process, and how far its clock is ahead."""

    def __init__(self, listeners: Iterable[Listener], now_ms: Callable[[], int]) -> None:
        self.ahead_ms = 0
        self._now_ms = now_ms
        self._normal: dict[Listener, Handle] = {listener: listener.handle for listener in listeners}
        self._by_number: dict[int, Fault] = {}
        self._last_number = 0

    def add(self, fault: Fault) -> int:
        """Set the fault; return its number."""
        self._last_number += 1
        self._by_number[self._last_number] = fault
        self._take_place()
        return self._last_number

    def hits(self, number: int) -> int:
        return self._find(number).hits

    def remove(self, number: int) -> None:
        """End the fault, and close connections that it left without an answer, so that their clients reconnect soon."""
        fault = self._find(number)
        fault.times_left = 0
        for connection in fault.hanging:
            connection.close("")
        fault.hanging.clear()
        self._take_place()

    def clear(self) -> None:
        for number in self._by_number:
            self.remove(number)

    def advance_clock(self, by_ms: int) -> None:
        self.ahead_ms += by_ms
        self._take_place()

    def _find(self, number: int) -> Fault:
        if number not in self._by_number:
            raise BadFault(f"fault {number} is not known here\n\nhint: a broker that is restarted forgets its faults")
        return self._by_number[number]

    def _take_place(self) -> None:
        is_idle = not self.ahead_ms and all(fault.is_over for fault in self._by_number.values())
        for listener, normal in self._normal.items():
            listener.handle = normal if is_idle else _Interference(self, listener, normal).handle

    def concerning(self, api_key: int, client_id: str, at: str) -> list[Fault]:
        return [f for f in self._by_number.values() if f.at == at and f.concerns(api_key, client_id)]

    def strikes(self, fault: Fault) -> bool:
        """Whether the fault strikes now. After the last time, `Listener.handle` is restored."""
        is_struck = fault.strikes()
        if is_struck and fault.is_over:
            self._take_place()
        return is_struck

    def now_ms(self) -> int:
        return self._now_ms() + self.ahead_ms


class _Interference:
    """Takes requests from a listener, applies faults, and passes the rest to the broker."""

    def __init__(self, faults: Faults, listener: Listener, normal: Handle) -> None:
        self._faults = faults
        self._listener = listener
        self._normal = normal

    def handle(self, frame: Frame, connection: ClientConnection, now_ms: int) -> None:
        api_key, client_id = int.from_bytes(frame[:2], "big"), client_id_of(frame)
        for fault in self._faults.concerning(api_key, client_id, REQUEST):
            if self._strikes_request(fault, frame, connection):
                return
        target: Any = connection
        if self._faults.concerning(api_key, client_id, REPLY):
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
            connection.reply(parts or [])
        elif fault.action == DELAY:
            asyncio.get_running_loop().call_later(fault.delay_ms / 1000, self._handle_late, frame, connection)
        else:
            _end_without_answer(fault, connection)
        return True

    def _handle_late(self, frame: Frame, connection: ClientConnection) -> None:
        self._listener.handle_late(self._normal, frame, connection, self._faults.now_ms())


class _Gate:
    """A connection, for one request, whose reply may not reach the client. The rest is delegated to the connection."""

    __slots__ = ("_client_id", "_connection", "_faults", "_frame")

    def __init__(self, faults: Faults, frame: Frame, client_id: str, connection: ClientConnection) -> None:
        self._faults = faults
        self._frame = frame
        self._client_id = client_id
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def reply(self, parts: list[bytes]) -> None:
        connection = self._connection
        for fault in self._faults.concerning(int.from_bytes(self._frame[:2], "big"), self._client_id, REPLY):
            changed = stamped(self._frame, parts, fault.error_code) if fault.action == ERROR else parts
            if changed is None or not self._faults.strikes(fault):
                continue
            if fault.action == ERROR:
                connection.reply(changed)
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


# --- parsing ----------------------------------------------------------------------------------------------


def parse_fault(
    action: str,
    *,
    at: str,
    api: str | None = None,
    client_id: str | None = None,
    times: int | None = None,
    skip: int = 0,
    error: str | int = 0,
    ms: int = 0,
) -> Fault:
    """Raises BadFault."""
    if action not in ACTIONS:
        raise _unknown("action", action, ACTIONS)
    if at not in MOMENTS:
        raise _unknown("moment", at, MOMENTS)
    if times is not None and times < 1:
        raise BadFault(f"times={times} never happens\n\nhint: 1 or more; None means: until it is cleared")
    if skip < 0 or ms < 0:
        raise BadFault(f"skip={skip} and ms={ms} must not be negative\n\nhint: leave them out")
    api_key = None if api is None else _api_key(api)
    error_code = 0
    if action == ERROR:
        error_code = _error_code(error)
        if api_key is None or not can_carry_error(api_key):
            raise BadFault(f"the reply of {api} has no place for an error\n\nhint: drop or disconnect it instead")
    return Fault(action, at, api_key, client_id, times, skip, error_code, ms)


def _api_key(name: str) -> int:
    """Kafka has two spellings: EndTxn in the protocol, END_TXN in its code."""
    by_letters = {api.name.lower(): api for api in APIS.values()}
    api = by_letters.get(name.replace("_", "").lower())
    if api is None:
        raise _unknown("API", name, [api.name for api in APIS.values()])
    return api.key


def _error_code(error: str | int) -> int:
    names = {name: code for name, code in vars(errors).items() if name.isupper() and isinstance(code, int)}
    code = error if isinstance(error, int) else names.get(error)
    if code is None or code not in names.values():
        raise _unknown("error", str(error), list(names))
    if code == errors.NONE:
        raise BadFault("NONE is no error\n\nhint: name one, such as COORDINATOR_NOT_AVAILABLE")
    return code


def _unknown(kind: str, given: str, known: Iterable[str]) -> BadFault:
    known = list(known)
    close = get_close_matches(given, known, 1, 0.5) or get_close_matches(given.upper(), known, 1, 0.5)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known[:12])}"
    return BadFault(f"{given!r} is no {kind} of this broker\n\nhint: {hint}")
