"""A fault, and the faults of one broker or one tap: which requests they strike, and how often.

A fault strikes at the request, before the broker sees it, or at the reply, when the broker has carried out the request
and the client does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

ERROR, DELAY, DROP, DISCONNECT, DUPLICATE = ACTIONS = ("error", "delay", "drop", "disconnect", "duplicate")
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
    # The connections that it left without an answer.
    hanging: list[Any] = field(default_factory=list)

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


class FaultTable:
    """The faults of one process by their numbers, in the order in which they were set."""

    def __init__(self) -> None:
        self._by_number: dict[int, Fault] = {}
        self._last_number = 0

    def add(self, fault: Fault) -> int:
        """Set the fault; return its number."""
        self._last_number += 1
        self._by_number[self._last_number] = fault
        return self._last_number

    def hits(self, number: int) -> int:
        return self.find(number).hits

    def remove(self, number: int) -> list[Any]:
        """End the fault; return the connections that it left without an answer."""
        fault = self.find(number)
        fault.times_left = 0
        hanging, fault.hanging = fault.hanging, []
        return hanging

    def numbers(self) -> list[int]:
        return list(self._by_number)

    @property
    def is_idle(self) -> bool:
        return all(fault.is_over for fault in self._by_number.values())

    def concerning(self, api_key: int, client_id: str, at: str) -> list[Fault]:
        return [f for f in self._by_number.values() if f.at == at and f.concerns(api_key, client_id)]

    def find(self, number: int) -> Fault:
        if number not in self._by_number:
            raise BadFault(f"fault {number} is not known here\n\nhint: a broker that is restarted forgets its faults")
        return self._by_number[number]
